"""Whether a socket on disk is one of the command that wants to connect to it.

A socket belongs to the network namespace in which it was made, even if a file leads to it, and
a command without network has a namespace of its own. So those of the command are those that
listen there: the kernel says which file each of them is bound to. Names prove nothing, and
what is known of one other namespace says nothing about the next: containers have theirs.

Where no process of the command listens, it is refused like one without a listener:
programs know what to do with a socket file that was left behind.
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
_MOST_PROCESSES = 1_000
_MOST_DESCRIPTORS = 50_000  # of all processes; more are not checked


def is_own_socket(pid: int, file: int) -> bool:
    """Whether the command of the process `pid` itself listens at this file."""
    wanted = os.fstat(file)
    if not stat.S_ISSOCK(wanted.st_mode):
        return False
    listening = _listening_sockets(pid)
    for process, number, link in _sockets(pid) if listening else ():
        if link in listening and _is_bound_to(process, number, link, wanted):
            return True
    return False


def _listening_sockets(pid: int) -> frozenset[str]:
    """The sockets that listen in the network of this process, as its descriptors name them."""
    with open(f"/proc/{pid}/net/unix", "rb") as file:
        lines = file.read().split(b"\n")[1:-1]
    # Address, count, protocol, flags, type, state, inode, and a name with any content.
    fields = (line.split(None, 7) for line in lines)
    return frozenset(
        f"socket:[{int(field[6])}]"
        for field in fields
        if len(field) > 6 and int(field[3], 16) & _LISTENING_FLAG
    )


def _sockets(pid: int) -> Iterator[tuple[int, int, str]]:
    """The processes of its command, their descriptors, and the links of these."""
    left = _MOST_DESCRIPTORS
    others = descendants(_first_process(pid), _MOST_PROCESSES)
    for process in dict.fromkeys((pid, *others)):
        with suppress(OSError):  # it has ended
            for name in os.listdir(f"/proc/{process}/fd"):
                if (left := left - 1) < 0:
                    return
                with suppress(OSError):
                    yield process, int(name), os.readlink(f"/proc/{process}/fd/{name}")


def _first_process(pid: int) -> int:
    """The outermost process above `pid` that is not in our own space of processes."""
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
    with ExitStack() as stack:
        try:
            copy = descriptor_of(process, number, stack)
            if f"socket:[{os.fstat(copy).st_ino}]" != link:  # the number is reused
                return False
            bound = fcntl.ioctl(copy, _BOUND_FILE)
            stack.callback(os.close, bound)
            return os.path.samestat(os.fstat(bound), status)
        except OSError:  # it has ended, or is bound to no file
            return False
