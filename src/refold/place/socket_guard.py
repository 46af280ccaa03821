"""Lets a command connect only to those sockets on disk that it could have created.

A network namespace does not keep a command from a socket on a disk that it sees: key agents,
containers and desktops listen there. So the kernel stops each `connect` of the command and asks
this module (seccomp with a listener). The connection is made here, on the command's own socket, to
the very file that was checked, so changes in the meantime have no effect. Which disks the command
may write is read from its own mounts. See seccomp_unotify(2).
"""

import errno
import fcntl
import os
import platform
import re
import select
import socket
import struct
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from threading import BoundedSemaphore, Thread

from msgspec import Struct

from refold.place.mountinfo import mounts
from refold.place.syscalls import call, connect, no_new_privileges

# seccomp(2): set a filter; give a descriptor to listen at; once the listener has received a
# call, only a fatal signal ends the waiting (since Linux 5.19).
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_OPENAT2, _PIDFD_GETFD = 437, 438
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10  # how openat2 resolves a path
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # ioctls of a listener
_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, arch, where, arguments
_ANSWER = struct.Struct("=QqiI")  # id, result, error, flags
_LONGEST = 128  # bytes of an address
_AT_ONCE = 64  # connections of one command that wait
_MOUNT = re.compile(rb"^mnt_id:\t(\d+)$", re.MULTILINE)
# Only a new line ends one: a name that a command chose may hold anything else.
_LEADER = re.compile(rb"^Tgid:\t(\d+)$", re.MULTILINE)
_BY_FAMILY, _DUMP, _SHOW_FILE = 20, 0x301, 2  # of linux/sock_diag.h
_LISTENING = 1 << 10

_LINE = struct.Struct("=HBBI")  # of a filter: what to do, jumps if and if not, a number
_LOAD, _IS, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
# Where they stand in seccomp_data: the call, its architecture, its first two arguments.
_AT_NUMBER, _AT_ARCH, _AT_FIRST, _AT_SECOND = 0, 4, 16, 24
_ALLOW, _ASK, _FAIL = 0x7FFF0000, 0x7FC00000, 0x00050000
_X32 = 0x40000000


class _Architecture(Struct, frozen=True):
    """Its number for the kernel's audit, and the numbers of its system calls.

    `keys` are those on the kernel's keyrings: each user has one, and no sandbox has its own.
    `foreign` are those of the older instruction set that make or connect sockets, for it
    can connect what the newer one made, and those on keyrings.
    """

    audit: int
    seccomp: int
    socket: int
    connect: int
    pair: int
    keys: tuple[int, ...]
    foreign: tuple[int, ...]


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E, 317, 41, 42, 53, (248, 249, 250), (102, 286, 287, 288, 359, 360, 362)
    ),
    "aarch64": _Architecture(
        0xC00000B7, 277, 198, 203, 199, (217, 218, 219), (102, 281, 283, 288, 309, 310, 311)
    ),
}
_IO_URING_SETUP = 425  # it connects, too, and nobody is asked


def install(*, offline: bool) -> Callable[[], None]:
    """Ask about what this thread starts from now on, until what is given back is called.

    `offline`: it has a network of its own. Raises `OSError`.
    """
    guard = SocketGuard(offline=offline)
    try:
        guard.install()
    except BaseException:
        guard.close()
        raise
    return guard.close


class SocketGuard:
    """For one command. `install` is called by the thread that starts it, and stays behind it."""

    def __init__(self, *, offline: bool) -> None:
        self._offline, self.asked = offline, False
        self._listener = -1
        self._go, self._stop = os.pipe()
        self._places = BoundedSemaphore(_AT_ONCE)
        self._served = allocate_lock()
        self._served.acquire()
        # A thread that stands behind the filter would ask itself. `Thread` would wait until
        # it runs: two changes of threads for each command.
        start_new_thread(self._work, ())

    def install(self) -> None:
        self._listener = _listen()
        os.write(self._stop, b"!")

    def close(self) -> None:
        """When all of the command has ended."""
        os.close(self._stop)
        self._served.acquire()  # until it has ended
        os.close(self._go)
        if self._listener >= 0:
            os.close(self._listener)

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
            found = dict(ready.poll())
            if self._go in found:
                return
            notice = bytearray(_NOTICE.size)
            with suppress(OSError):  # whoever asked is gone
                fcntl.ioctl(self._listener, _RECEIVE, notice)
                self._hear(notice)

    def _hear(self, notice: bytearray) -> None:
        name, pid, _, _, _, _, number, address, length, *_ = _NOTICE.unpack(notice)
        with ExitStack() as held:
            try:
                asked = _asked(held, pid, number, address, length)
                fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", name))
                goal = _goal(held, pid, asked, offline=self._offline)
                self.asked = True
                fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", name))
            except (OSError, ValueError) as error:
                # Whatever it made us read must not end us: then nobody would answer it.
                self._tell(name, getattr(error, "errno", 0) or errno.EACCES)
                return
            if fcntl.fcntl(asked.number, fcntl.F_GETFL) & os.O_NONBLOCK:
                self._tell(name, _connect(asked.number, goal))
            elif not self._places.acquire(blocking=False):
                self._tell(name, errno.EAGAIN)
            else:
                # It may wait for somebody who listens in the same command.
                waiting = Thread(
                    target=self._wait, args=(name, asked.number, goal, held.pop_all())
                )
                waiting.daemon = True
                waiting.start()

    def _wait(self, name: int, number: int, goal: bytes, held: ExitStack) -> None:
        with held:
            self._tell(name, _connect(number, goal))
        self._places.release()

    def _tell(self, name: int, error: int) -> None:
        with suppress(OSError):  # nobody waits for it any more
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(name, 0, -error, 0))


@cache
def works() -> bool:
    """Does this machine let us? Not in some containers, and not in a sandbox of ours."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    reached: list[bool] = []
    thread = Thread(target=lambda: reached.append(_try()))
    thread.start()
    thread.join()
    return reached == [True]


def _try() -> bool:
    """One connection, all the way. The filter ends with this thread."""
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


class _Asked(Struct, frozen=True):
    number: int  # the socket, as a descriptor of ours
    address: bytes


def _asked(held: ExitStack, pid: int, number: int, address: int, length: int) -> _Asked:
    if length > _LONGEST:
        raise OSError(errno.EINVAL, "an address that is too long")
    with open(f"/proc/{pid}/status", "rb") as file:
        leader = _LEADER.search(file.read())
    if not leader or address >= 1 << 63:
        raise OSError(errno.EFAULT, "nothing that is asked for")
    process = os.pidfd_open(int(leader[1]))
    held.callback(os.close, process)
    ours = call(_PIDFD_GETFD, process, number, 0)
    held.callback(os.close, ours)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return _Asked(ours, memory.read(length))


def _goal(held: ExitStack, pid: int, asked: _Asked, *, offline: bool) -> bytes:
    """The address to connect to. Raises `OSError` where it may not be reached."""
    unix = struct.pack("=H", socket.AF_UNIX)
    if not asked.address.startswith(unix) or _domain(asked.number) != socket.AF_UNIX:
        return asked.address
    if asked.address[2:3] in (b"", b"\0"):
        # Without a file it belongs to a network: to the command's own, or to everybody.
        if offline:
            return asked.address
        raise OSError(errno.ECONNREFUSED, "a socket of another program")
    file = _opened(held, pid, asked.address[2:].partition(b"\0")[0])
    disk = _disk(pid, file)
    if disk is None or (offline and _listens_outside(disk, file)):
        raise OSError(errno.EACCES, "a socket of another program")
    return unix + f"/proc/self/fd/{file}".encode() + b"\0"


def _domain(number: int) -> int:
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)


def _opened(held: ExitStack, pid: int, path: bytes) -> int:
    """The file that the command means, as a descriptor that only names it."""
    here = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(os.close, root)
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _IN_ROOT)
    found = call(_OPENAT2, root, os.path.join(here, path), how, len(how))
    held.callback(os.close, found)
    return found


def _disk(pid: int, file: int) -> int | None:
    """The device number of this file's disk, if the command may write it there."""
    with open(f"/proc/self/fdinfo/{file}", "rb") as about:
        found = _MOUNT.search(about.read())
    for mount in mounts(pid) if found else ():
        if found and mount.number == int(found[1]):
            major, minor = map(int, mount.device.split(":"))
            return major << 20 | minor if mount.writable else None
    return None


def _listens_outside(disk: int, file: int) -> bool:
    """Whether a program of our own network listens there, whatever the file is called by
    now.

    Sockets belong to a network namespace even if they are found by a file. See
    sock_diag(7).
    """
    wanted = (os.stat(f"/proc/self/fd/{file}").st_ino & 0xFFFFFFFF, disk)
    request = struct.pack(
        "=IHHIIBBHIIIQ", 40, _BY_FAMILY, _DUMP, 1, 0,
        socket.AF_UNIX, 0, 0, _LISTENING, 0, _SHOW_FILE, 0,
    )  # fmt: skip
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as asking:  # pyright: ignore[reportAttributeAccessIssue]
            asking.send(request)
            while True:
                for kind, said in _messages(asking.recv(1 << 16)):
                    if kind != _BY_FAMILY:
                        return False
                    if wanted in _files(said):
                        return True
    except OSError:  # a kernel that does not tell
        return False


def _messages(said: bytes) -> Iterator[tuple[int, bytes]]:
    while len(said) >= 16:
        length, kind = struct.unpack_from("=IH", said)
        if length < 16:
            return
        yield kind, said[16:length]
        said = said[length + 3 & ~3 :]


def _files(said: bytes) -> Iterator[tuple[int, int]]:
    said = said[16:]
    while len(said) >= 4:
        length, kind = struct.unpack_from("=HH", said)
        if length < 4:
            return
        if kind == 1:
            yield struct.unpack_from("=II", said, 4)
        said = said[length + 3 & ~3 :]


def _connect(number: int, address: bytes) -> int:
    """What went wrong, as a number of an error; 0: nothing."""
    try:
        connect(number, address)
    except OSError as error:
        return error.errno or errno.EACCES
    return 0


def _listen() -> int:
    """Put this thread, and what it starts, behind the filter; the listener's descriptor."""
    import ctypes

    number, filter_ = _filter(platform.machine())
    code = ctypes.create_string_buffer(filter_)
    program = struct.pack("@HP", len(filter_) // _LINE.size, ctypes.addressof(code))
    no_new_privileges()
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    try:
        return call(number, _SET_MODE_FILTER, flags, program)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 5.19
            raise
    return call(number, _SET_MODE_FILTER, _NEW_LISTENER, program)


@cache
def _filter(machine: str) -> tuple[int, bytes]:
    """The number of seccomp(2), and the filter as the kernel reads it."""
    architecture = _ARCHITECTURES[machine]
    lines = (_LINE.pack(*line) for line in _lines(architecture))
    return architecture.seccomp, b"".join(lines)


def _lines(architecture: _Architecture) -> list[tuple[int, int, int, int]]:
    """The filter. A jump skips so many lines if equal, so many if not."""
    asked, denied = (_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _FAIL | errno.EPERM)
    absent, allowed = (_RETURN, 0, 0, _FAIL | errno.ENOSYS), (_RETURN, 0, 0, _ALLOW)
    foreign = [x for number in architecture.foreign for x in ((_IS, 0, 1, number), denied)]
    keys = [x for number in architecture.keys for x in ((_IS, 0, 1, number), denied)]
    own = [
        (_LOAD, 0, 0, _AT_NUMBER),
        (0x35, 0, 1, _X32),
        absent,
        (_IS, 0, 1, _IO_URING_SETUP),
        absent,
        *keys,
        (_IS, 0, 1, architecture.connect),
        asked,
        (_IS, 2, 0, architecture.pair),
        (_IS, 1, 0, architecture.socket),
        allowed,
        (_LOAD, 0, 0, _AT_FIRST),
        (_IS, 0, 1, 40),  # between a virtual machine and its host
        denied,
        (_IS, 1, 0, socket.AF_UNIX),
        allowed,
        # One that sends without a connection could send anywhere, also one of a pair.
        (_LOAD, 0, 0, _AT_SECOND),
        (_AND, 0, 0, 0xF),
        (_IS, 2, 0, socket.SOCK_STREAM),
        (_IS, 1, 0, socket.SOCK_SEQPACKET),
        denied,
        allowed,
    ]
    old = [
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IS, 0, 1, _IO_URING_SETUP),
        absent,
        *foreign,
        allowed,
    ]
    head = [(_LOAD, 0, 0, _AT_ARCH), (_IS, 0, len(own), architecture.audit)]
    return [*head, *own, *old]
