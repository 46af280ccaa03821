"""Answers for the system calls of a command that the kernel stops (seccomp with a listener).

A network namespace does not keep a command from a socket on a disk that it sees: key agents,
containers and desktops listen there. So each `connect` of the command is made here, on its own
socket, to the very file that was checked: changes in the meantime have no effect. Which disks
the command may write is read from its own mounts; `socket_owner` says whose a socket is,
`directory_modes` decides on setgid bits, `datagram_pairs` makes pairs of sockets, `seccomp` has the filter. See seccomp_unotify(2).

Hiding sockets by name missed those that were renamed, linked or created later, and
forbidding them breaks `multiprocessing`, databases in tests and language servers. It costs
0.3 ms for a command and 0.2 ms for a connection; a server in the sandbox sees refold as its
peer. Where the kernel lacks it, sockets are hidden by name.
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

# seccomp(2): set a filter; give a descriptor to listen at; once the listener has received a
# call, only a fatal signal ends the waiting (since Linux 5.19).
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # ioctls of a listener
_ANSWER_STRUCT = struct.Struct("=QqiI")  # id, result, error, flags
_MAX_ADDRESS_BYTES = 128
_MAX_WAITING_CALLS = 64  # of one command; later calls get EAGAIN
_MOUNT_ID = re.compile(rb"^mnt_id:\t(\d+)$", re.MULTILINE)


def install(*, offline: bool, reachable: str = "") -> Callable[[], None]:
    """Guard all processes that this thread starts from now on, until the returned function
    is called.

    `offline`: it has a network of its own. `reachable`: a socket of ours to which it may
    connect. Raises `OSError`.
    """
    guard = SocketGuard(offline=offline, reachable=reachable)
    try:
        guard.install()
    except BaseException:
        guard.close()
        raise
    return guard.close


class SocketGuard:
    """The guard of one command. The thread that starts the command calls `install`.

    Whatever an answer needs (a path on a slow disk, the memory of the caller, a connection
    that is not accepted) may take for ever, and a command can see to it. So the thread that
    listens only receives, other threads answer, and `close` waits for none of these.
    """

    def __init__(self, *, offline: bool, reachable: str = "") -> None:
        self._offline, self.asked = offline, False
        self._reachable = os.stat(reachable) if reachable else None
        self._listener = -1
        self._go, self._stop = os.pipe()
        self._answering = allocate_lock()  # its holder uses the listener, or closes it
        self._connecting = set[int]()
        self._threads = _Threads(self._answer)
        self._served = allocate_lock()
        self._served.acquire()
        # A thread behind the filter would ask itself. `Thread` would wait until
        # it runs: two changes of threads for each command.
        start_new_thread(self._work, ())

    def install(self) -> None:
        self._listener = _install_filter()
        os.write(self._stop, b"!")

    def close(self) -> None:
        """Close it when the whole command has ended."""
        os.close(self._stop)
        self._served.acquire()  # until it has ended
        self._threads.close()
        os.close(self._go)
        with self._answering:
            if self._listener >= 0:
                os.close(self._listener)
            self._listener = -1
            for number in self._connecting:
                shut_down(number)  # otherwise it waits for the network timeout

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            self._served.release()

    def _serve(self) -> None:
        if not os.read(self._go, 1):
            return
        ready = select.poll()
        for number in (self._go, self._listener):
            ready.register(number, select.POLLIN)
        while True:
            events = dict(ready.poll())
            if self._go in events:
                return
            notice = bytearray(NOTICE_STRUCT.size)
            with suppress(OSError):  # the caller has ended
                fcntl.ioctl(self._listener, _RECEIVE, notice)
                if not self._threads.assign(bytes(notice)):
                    self._reply(NOTICE_STRUCT.unpack(notice)[0], errno.EAGAIN)

    def _answer(self, notice: bytes) -> None:
        with ExitStack() as stack:
            asked = StoppedCall(notice, stack)
            try:
                error = self._execute(asked)
            except (OSError, ValueError) as problem:
                # Nothing that it makes us read may end this thread: then no call would be answered.
                error = getattr(problem, "errno", 0) or errno.EACCES
            self._reply(asked.id, error)

    def _execute(self, stopped_call: StoppedCall) -> int:
        """Do what the caller asked for. Return an error number, or 0. Raises `OSError`."""
        self.asked = True
        self._check(stopped_call)
        if is_mode_call(stopped_call.number):
            set_mode(stopped_call)
            return 0
        if is_pair_call(stopped_call.number):
            make_pair(stopped_call, self._control, partial(self._check, stopped_call))
            return 0
        number, address, length = stopped_call.arguments[:3]
        ours, goal = self._connection_target(stopped_call, (number, address, length))
        self._check(stopped_call)
        with self._answering:
            self._connecting.add(ours)
        try:
            return _connect(ours, goal)
        finally:
            with self._answering:
                self._connecting.discard(ours)

    def _connection_target(
        self, stopped_call: StoppedCall, arguments: tuple[int, int, int]
    ) -> tuple[int, bytes]:
        """The socket, as a descriptor of ours, and the address to connect it to.

        Raises `OSError` where that may not be reached.
        """
        number, pointer, length = arguments
        if length > _MAX_ADDRESS_BYTES:
            raise OSError(errno.EINVAL, "an address that is too long")
        ours, address = (
            stopped_call.descriptor(number),
            stopped_call.memory(pointer, length),
        )
        unix = struct.pack("=H", socket.AF_UNIX)
        if not address.startswith(unix) or _socket_family(ours) != socket.AF_UNIX:
            return ours, address
        if address[2:3] in (b"", b"\0"):
            # An abstract socket belongs to a network: the command's own, or the shared one.
            if self._offline:
                return ours, address
            raise OSError(errno.ECONNREFUSED, "a socket of another program")
        file = stopped_call.open(address[2:].partition(b"\0")[0])
        self._check_socket(stopped_call, file)
        return ours, unix + f"/proc/self/fd/{file}".encode() + b"\0"

    def _check_socket(self, stopped_call: StoppedCall, file: int) -> None:
        """Raise `OSError` if the command may not connect to this socket on a disk."""
        if self._reachable and os.path.samestat(os.fstat(file), self._reachable):
            return
        if not _can_write(stopped_call.pid, file):
            raise OSError(errno.EACCES, "a socket of another program")
        if self._offline and not is_own_socket(stopped_call.pid, file):
            raise OSError(errno.ECONNREFUSED, "a socket of another program")

    def _check(self, stopped_call: StoppedCall) -> None:
        """Raise if the caller no longer waits: its number may be that of another by now."""
        self._control(_IS_VALID, bytearray(struct.pack("=Q", stopped_call.id)))

    def _reply(self, name: int, error: int) -> None:
        with suppress(OSError):  # the caller no longer waits
            self._control(_SEND, bytearray(_ANSWER_STRUCT.pack(name, 0, -error, 0)))

    def _control(self, request: int, words: bytearray) -> int:
        with self._answering:
            if self._listener < 0:
                raise OSError(errno.ENOENT, "the command has ended")
            return fcntl.ioctl(self._listener, request, words)


class _Threads:
    """Up to `_MAX_WAITING_CALLS` threads, each of which may block forever. Idle ones are reused."""

    def __init__(self, function: Callable[[bytes], None]) -> None:
        self._work, self._lock = function, allocate_lock()
        self._given = SimpleQueue[bytes | None]()
        self._idle = self._all = 0

    def assign(self, notice: bytes) -> bool:
        """Pass a call to a thread. Return False if all threads are blocked."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._all < _MAX_WAITING_CALLS:
                self._all += 1
                start_new_thread(self._run, ())
            else:
                return False
        self._given.put(notice)
        return True

    def close(self) -> None:
        """End each thread when it is idle."""
        for _ in range(self._all):
            self._given.put(None)

    def _run(self) -> None:
        while (notice := self._given.get()) is not None:
            self._work(notice)
            with self._lock:
                self._idle += 1


@cache
def is_permitted() -> bool:
    """Whether this machine permits it: not in some containers, and not in our sandbox."""
    if sys.platform != "linux" or native_architecture() is None:
        return False
    if not hasattr(os, "pidfd_open"):  # before Python 3.9, on the far side of a pipe
        return False
    reached: list[bool] = []
    thread = Thread(target=lambda: reached.append(_test_connection()))
    thread.start()
    thread.join()
    return reached == [True]


def _test_connection() -> bool:
    """Try one complete connection. The filter ends with this thread."""
    try:
        guard = SocketGuard(offline=True)
        try:
            guard.install()
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(5)
                return asking.connect_ex("/dev/null") == errno.ECONNREFUSED and guard.asked
        finally:
            guard.close()
    except OSError:
        return False


def _socket_family(number: int) -> int:
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)


def _can_write(pid: int, file: int) -> bool:
    """Whether the command can write to this mount, so that it could have made the socket."""
    with open(f"/proc/self/fdinfo/{file}", "rb") as about:
        match = _MOUNT_ID.search(about.read())
    number = int(match[1]) if match else -1
    return any(mount.number == number and mount.writable for mount in mounts(pid))


def _connect(number: int, address: bytes) -> int:
    """Connect. Return an error number, or 0."""
    try:
        connect(number, address)
    except OSError as error:
        return error.errno or errno.EACCES
    return 0


def _install_filter() -> int:
    """Put this thread and what it starts behind the filter. Return the listener."""
    import ctypes

    known, filter_ = native_architecture(), guard_filter()
    if known is None:
        raise OSError(errno.ENOSYS, "a machine whose calls refold does not know")
    number = known.calls["seccomp"]
    code = ctypes.create_string_buffer(filter_)
    program = struct.pack("@HP", len(filter_) // LINE_STRUCT.size, ctypes.addressof(code))
    forbid_new_privileges()
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    try:
        return system_call(number, _SET_MODE_FILTER, flags, program)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 5.19
            raise
    return system_call(number, _SET_MODE_FILTER, _NEW_LISTENER, program)
