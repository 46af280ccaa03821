"""Answers system calls of a command that the kernel has stopped (seccomp, with a listener).

A network namespace does not keep a command from a socket on a visible disk, and key agents,
containers and desktops listen on such sockets. So this module makes each `connect` for the
command, on the command's socket, to exactly the file that it checked. A change of the path in
the meantime has no effect. A command may connect to a socket file only if it can write to the
mount of that file.

`socket_owner` finds the owner of a socket, `directory_modes` decides on setgid bits,
`datagram_pairs` makes socket pairs, and `seccomp` has the filter. See seccomp_unotify(2).

Hiding sockets by name missed those that were renamed, linked or created later. Forbidding them
breaks `multiprocessing`, databases in tests and language servers. The guard costs 0.3 ms for a
command and 0.2 ms for a connection; a server in the sandbox sees refold as its peer. If the
kernel lacks the feature, sockets are hidden by name.
"""

import errno
import fcntl
import os
import re
import select
import socket
import struct
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from queue import SimpleQueue
from threading import Thread

from refold.place.datagram_pairs import is_pair_call, make_pair
from refold.place.directory_modes import is_mode_call, set_mode
from refold.place.mountinfo import mounts
from refold.place.seccomp import LINE_STRUCT, guard_filter, native_architecture
from refold.place.socket_owner import is_own_socket
from refold.place.stopped_call import NOTICE_STRUCT, StoppedCall
from refold.place.syscalls import connect, forbid_new_privileges, shut_down, system_call

# seccomp(2): set a filter; return a descriptor to listen at; once the listener has received
# a call, only a fatal signal interrupts the waiting caller (since Linux 5.19).
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # ioctls of a listener
_ANSWER_STRUCT = struct.Struct("=QqiI")  # id, result, error, flags
_TEST_SECONDS = 5.0  # limits a connection that is answered at once
_MAX_ADDRESS_BYTES = 128
_MAX_WAITING_CALLS = 64  # for one command; later calls get EAGAIN
_MOUNT_ID = re.compile(rb"^mnt_id:\t(\d+)$", re.MULTILINE)


def install(*, offline: bool, reachable: str = "") -> Callable[[], None]:
    """Guard all processes that this thread starts. Return a function that ends the guard.

    `offline` says that the command has a network namespace of its own. `reachable` is a socket
    of refold to which it may connect, or "". Raises `OSError`.
    """
    guard = SocketGuard(offline=offline, reachable=reachable)
    try:
        guard.install()
    except BaseException:
        guard.close()
        raise
    return guard.close


class SocketGuard:
    """The guard of one command. The thread that starts the command must call `install`.

    An answer can take forever, and a command can cause that: by a path on a slow disk, by its
    memory, or by a connection that is not accepted. So one thread only receives calls, others
    answer them, and `close` waits for none of these.
    """

    def __init__(self, *, offline: bool, reachable: str = "") -> None:
        self._offline = offline
        self.has_answered = False
        self._reachable = os.stat(reachable) if reachable else None
        self._listener = -1
        # The listening thread receives a byte when the filter is installed. The end of
        # `_news` ends that thread.
        self._news, self._tell_news = os.pipe()
        self._answering = allocate_lock()  # held while the listener is used or closed
        self._connecting = set[int]()
        self._threads = _Threads(self._answer)
        self._served = allocate_lock()  # held until the listening thread has ended
        self._served.acquire()
        # A thread behind the filter would ask itself. `Thread.start` would wait until the
        # thread runs, which costs two thread switches for each command.
        start_new_thread(self._work, ())

    def install(self) -> None:
        self._listener = _install_filter()
        os.write(self._tell_news, b"!")

    def close(self) -> None:
        """End the guard. Call this after all processes of the command have exited."""
        os.close(self._tell_news)
        self._served.acquire()  # wait until the listening thread has ended
        self._threads.close()
        os.close(self._news)
        with self._answering:
            if self._listener >= 0:
                os.close(self._listener)
            self._listener = -1
            for number in self._connecting:
                shut_down(number)  # otherwise it waits for the network timeout

    def _work(self) -> None:
        """Serve stopped calls in this thread, and tell `close` when it ends."""
        try:
            self._serve()
        finally:
            self._served.release()

    def _serve(self) -> None:
        """Pass each stopped call to a thread until `close`. If all are busy, the call fails."""
        if not os.read(self._news, 1):  # closed before the filter was installed
            return
        ready = select.poll()
        for number in (self._news, self._listener):
            ready.register(number, select.POLLIN)
        while True:
            events = dict(ready.poll())
            if self._news in events:  # `close` was called
                return
            notice = bytearray(NOTICE_STRUCT.size)
            with suppress(OSError):  # the caller has exited
                fcntl.ioctl(self._listener, _RECEIVE, notice)
                if not self._threads.assign(bytes(notice)):
                    call_id, *_ = NOTICE_STRUCT.unpack(notice)
                    self._reply(call_id, errno.EAGAIN)

    def _answer(self, notice: bytes) -> None:
        """Execute a stopped call for its caller, and send the error number, 0 for success."""
        with ExitStack() as stack:
            stopped_call = StoppedCall(notice, stack)
            try:
                error = self._execute(stopped_call)
            except (OSError, ValueError) as problem:
                # No error in reading what the caller names may end this thread, because
                # then no call would be answered.
                error = getattr(problem, "errno", 0) or errno.EACCES
            self._reply(stopped_call.id, error)

    def _execute(self, stopped_call: StoppedCall) -> int:
        """Do what the stopped call requests. Return its error number; 0 for success.

        Raises `OSError` for a call that is refused.
        """
        self.has_answered = True
        self._check(stopped_call)
        if is_mode_call(stopped_call.number):
            set_mode(stopped_call)
            return 0
        if is_pair_call(stopped_call.number):
            make_pair(stopped_call, self._control, partial(self._check, stopped_call))
            return 0
        our_socket, target = self._connection_target(stopped_call)
        self._check(stopped_call)
        with self._answering:
            self._connecting.add(our_socket)
        try:
            return _connect(our_socket, target)
        finally:
            with self._answering:
                self._connecting.discard(our_socket)

    def _connection_target(self, stopped_call: StoppedCall) -> tuple[int, bytes]:
        """Return a descriptor of the caller's socket, and the address to connect it to.

        Raises `OSError` if the address must not be reached.
        """
        number, pointer, length = stopped_call.arguments[:3]
        if length > _MAX_ADDRESS_BYTES:
            raise OSError(errno.EINVAL, "an address that is too long")
        our_socket = stopped_call.descriptor(number)
        address = stopped_call.memory(pointer, length)
        family = struct.pack("=H", socket.AF_UNIX)
        if not address.startswith(family) or _socket_family(our_socket) != socket.AF_UNIX:
            return our_socket, address
        path = address[len(family) :]
        if path[:1] in (b"", b"\0"):
            # An abstract socket belongs to a network, which is the command's own or the
            # shared one.
            if self._offline:
                return our_socket, address
            raise OSError(errno.ECONNREFUSED, "a socket of another program")
        name, _, _ = path.partition(b"\0")
        file = stopped_call.open(name)
        self._check_socket(stopped_call, file)
        # No program can replace the file that is open, as it could replace what is at the path.
        return our_socket, family + f"/proc/self/fd/{file}".encode() + b"\0"

    def _check_socket(self, stopped_call: StoppedCall, file: int) -> None:
        """Raise `OSError` if the caller may not connect to the socket that `file` has open."""
        if self._reachable and os.path.samestat(os.fstat(file), self._reachable):
            return
        if not _can_write(stopped_call.pid, file):
            raise OSError(errno.EACCES, "a socket of another program")
        if self._offline and not is_own_socket(stopped_call.pid, file):
            raise OSError(errno.ECONNREFUSED, "a socket of another program")

    def _check(self, stopped_call: StoppedCall) -> None:
        """Raise `OSError` if the caller no longer waits.

        Its process id may then belong to another process.
        """
        self._control(_IS_VALID, bytearray(struct.pack("=Q", stopped_call.id)))

    def _reply(self, call_id: int, error: int) -> None:
        with suppress(OSError):  # the caller no longer waits
            self._control(_SEND, bytearray(_ANSWER_STRUCT.pack(call_id, 0, -error, 0)))

    def _control(self, request: int, words: bytearray) -> int:
        """Use the listener. Raises `OSError` if it is closed, or if that fails."""
        with self._answering:
            if self._listener < 0:
                raise OSError(errno.ENOENT, "the command has ended")
            return fcntl.ioctl(self._listener, request, words)


class _Threads:
    """Up to `_MAX_WAITING_CALLS` threads that call `function`, and may block forever.

    Idle threads are used again.
    """

    def __init__(self, function: Callable[[bytes], None]) -> None:
        self._function, self._lock = function, allocate_lock()
        self._notices = SimpleQueue[bytes | None]()
        self._idle = self._all = 0

    def assign(self, notice: bytes) -> bool:
        """Pass a stopped call to a thread. Return False if all threads are busy."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._all < _MAX_WAITING_CALLS:
                self._all += 1
                start_new_thread(self._run, ())
            else:
                return False
        self._notices.put(notice)
        return True

    def close(self) -> None:
        """End each thread as soon as it is idle."""
        for _ in range(self._all):
            self._notices.put(None)

    def _run(self) -> None:
        """Process one stopped call after the other. None ends the thread."""
        while (notice := self._notices.get()) is not None:
            self._function(notice)
            with self._lock:
                self._idle += 1


@cache
def is_permitted() -> bool:
    """Whether the guard works on this machine.

    Some containers do not permit it, nor does refold's own sandbox.
    """
    if sys.platform != "linux" or native_architecture() is None:
        return False
    if not hasattr(os, "pidfd_open"):  # Python before 3.9, on the far side of a pipe
        return False
    results = SimpleQueue[bool]()

    def test() -> None:
        results.put(_test_connection())

    thread = Thread(target=test)
    thread.start()
    thread.join()
    return not results.empty() and results.get()


def _test_connection() -> bool:
    """Return whether the guard answers a connection of this thread.

    The filter lasts as long as this thread.
    """
    try:
        guard = SocketGuard(offline=True)
        try:
            guard.install()
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(_TEST_SECONDS)
                # The guard refuses this, because /dev/null is not a socket.
                error = asking.connect_ex("/dev/null")
                return error == errno.ECONNREFUSED and guard.has_answered
        finally:
            guard.close()
    except OSError:
        return False


def _socket_family(number: int) -> int:
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)


def _can_write(pid: int, file: int) -> bool:
    """Whether the command of `pid` can write to the mount of the open `file`.

    Then it could have created the socket there itself.
    """
    with open(f"/proc/self/fdinfo/{file}", "rb") as info:
        match = _MOUNT_ID.search(info.read())
    if match is None:
        return False
    number = int(match[1])
    return any(mount.number == number and mount.writable for mount in mounts(pid))


def _connect(number: int, address: bytes) -> int:
    """Connect the socket `number`. Return an error number; 0 for success."""
    try:
        connect(number, address)
    except OSError as error:
        return error.errno or errno.EACCES
    return 0


def _install_filter() -> int:
    """Install the filter for this thread and what it starts. Return the listener's descriptor.

    Raises `OSError`.
    """
    import ctypes

    architecture = native_architecture()
    filter_ = guard_filter()
    if architecture is None:
        raise OSError(errno.ENOSYS, "a machine whose calls refold does not know")
    number = architecture.calls["seccomp"]
    code = ctypes.create_string_buffer(filter_)
    program = struct.pack("@HP", len(filter_) // LINE_STRUCT.size, ctypes.addressof(code))
    forbid_new_privileges()
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    try:
        return system_call(number, _SET_MODE_FILTER, flags, program)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # a kernel before 5.19, which does not know `_WAIT_KILLABLE`
    return system_call(number, _SET_MODE_FILTER, _NEW_LISTENER, program)
