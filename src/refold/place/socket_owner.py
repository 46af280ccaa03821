"""Decides whether a socket on a disk belongs to the command that connects to it.

A socket belongs to the network namespace in which it was created, and a command without network
has a namespace of its own. So the command's sockets are those that listen in this namespace;
for each, the kernel reports the file that it is bound to. Names prove nothing.

If no process of the command listens at a socket file, the connection is refused with the error
for a file whose program has exited: programs can handle that error.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from refold.place.limits import descendants
from refold.place.reaper import process_line
from refold.place.stopped_call import descriptor_of

_BOUND_FILE = 0x89E0  # SIOCUNIXFILE of unix(7): the file that a socket is bound to
_LISTENING_FLAG = 0x10000  # the flag of a socket that listens, in /proc/net/unix
_MAX_PROCESSES = 1_000
_MAX_DESCRIPTORS = 50_000  # the descriptors of all processes; more are not checked


def is_own_socket(pid: int, file: int) -> bool:
    """Whether a process of the command listens at the open socket file `file`.

    `pid` is a process of the command.
    """
    wanted = os.fstat(file)
    if not stat.S_ISSOCK(wanted.st_mode):
        return False
    listening = _listening_sockets(pid)
    if not listening:
        return False
    for process, number, link in _sockets(pid):
        if link in listening and _is_bound_to(process, number, link, wanted):
            return True
    return False


def _listening_sockets(pid: int) -> frozenset[str]:
    """Return the sockets that listen in the network namespace of a process.

    The sockets are named as in the links in /proc, for example "socket:[1234]".
    """
    with open(f"/proc/{pid}/net/unix", "rb") as file:
        lines = file.read().split(b"\n")[1:-1]
    sockets = set[str]()
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) < 7:
            continue
        # A name, with any characters, may follow these.
        _address, _count, _protocol, flags, _type, _state, inode, *_ = fields
        if int(flags, 16) & _LISTENING_FLAG:
            sockets.add(f"socket:[{int(inode)}]")
    return frozenset(sockets)


def _sockets(pid: int) -> Iterator[tuple[int, int, str]]:
    """Yield the open descriptors of all processes of a command, up to a limit.

    Each descriptor is given as process id, descriptor number, and the target of its link in
    /proc.
    """
    count = 0
    others = descendants(_first_process(pid), _MAX_PROCESSES)
    for process in dict.fromkeys((pid, *others)):
        with suppress(OSError):  # the process has exited
            for name in os.listdir(f"/proc/{process}/fd"):
                count += 1
                if count > _MAX_DESCRIPTORS:
                    return
                with suppress(OSError):  # it was closed
                    yield process, int(name), os.readlink(f"/proc/{process}/fd/{name}")


def _first_process(pid: int) -> int:
    """Return the outermost process, `pid` or above it, that is in a PID namespace below ours."""
    ours = os.stat("/proc/self/ns/pid").st_ino
    while (line := process_line(pid)) and line.parent > 0:
        try:
            if os.stat(f"/proc/{line.parent}/ns/pid").st_ino == ours:
                break
        except OSError:
            break
        pid = line.parent
    return pid


def _is_bound_to(process: int, number: int, link: str, status: os.stat_result) -> bool:
    """Whether a socket of a process is bound to the file with this status."""
    with ExitStack() as stack:
        try:
            copy = descriptor_of(process, number, stack)
            # the descriptor number was reused
            if f"socket:[{os.fstat(copy).st_ino}]" != link:
                return False
            bound = fcntl.ioctl(copy, _BOUND_FILE)
            stack.callback(os.close, bound)
            return os.path.samestat(os.fstat(bound), status)
        except OSError:  # the process has exited, or the socket is bound to no file
            return False
