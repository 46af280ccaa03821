"""A system call that the kernel has stopped, and what it is about: memory, descriptors, files.

It says nothing about whether the call may be made: `socket_guard` and `directory_modes` do.
See seccomp_unotify(2).
"""

import errno
import os
import re
import struct
from collections.abc import Callable
from contextlib import ExitStack

from refold.place.syscalls import system_call

NOTICE_STRUCT = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, arch, where, arguments
_OPENAT2, _PIDFD_GETFD = 437, 438
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10  # how openat2 resolves a path
# Only a new line ends one: a name that a command chose may hold anything else.
_THREAD_GROUP = re.compile(rb"^Tgid:\t(\d+)$", re.MULTILINE)


class StoppedCall:
    """A system call that waits for our answer. All methods raise `OSError`.

    `id` is the kernel's number for the call; `stack` closes what is opened for it.
    """

    def __init__(self, notice: bytes, stack: ExitStack) -> None:
        self.id, self.pid, _, self.number, _, _, *self.arguments = NOTICE_STRUCT.unpack(
            notice
        )
        self._held = stack

    def descriptor(self, number: int) -> int:
        """A descriptor of ours for the file of the caller's descriptor."""
        with open(f"/proc/{self.pid}/status", "rb") as file:
            leader = _THREAD_GROUP.search(file.read())
        if not leader:
            raise OSError(errno.ESRCH, "a caller that is gone")
        return descriptor_of(int(leader[1]), number & 0xFFFFFFFF, self._held)

    def memory(self, address: int, length: int) -> bytes:
        """Up to `length` bytes of the caller's memory; fewer at the end of a mapping."""
        if address >= 1 << 63:
            raise OSError(errno.EFAULT, "an address that no process has")
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)

    def write(self, address: int, data: bytes, check: Callable[[], None]) -> None:
        """Write to the caller's memory. `check` raises if the caller does not wait any more.

        The check comes after the memory was opened: a process id could be another process's by
        then.
        """
        if address >= 1 << 63:
            raise OSError(errno.EFAULT, "an address that no process has")
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            check()
            memory.seek(address)
            memory.write(data)

    def open(self, path: bytes, base: str = "cwd", *, follow: bool = True) -> int:
        """The file that the caller means, as an O_PATH descriptor.

        `base` is what a relative path starts from: a link below the /proc of the caller.
        Without `follow`, a link at the end of the path is itself the file.
        """
        start = os.fsencode(os.readlink(f"/proc/{self.pid}/{base}"))
        root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held.callback(os.close, root)
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        open_how = struct.pack("=QQQ", flags, 0, _NO_MAGICLINKS | _IN_ROOT)
        file = system_call(
            _OPENAT2, root, os.path.join(start, path), open_how, len(open_how)
        )
        self._held.callback(os.close, file)
        return file


def descriptor_of(process: int, number: int, stack: ExitStack) -> int:
    """A copy of the descriptor `number` of this process. Raises `OSError`."""
    pidfd = os.pidfd_open(process)
    stack.callback(os.close, pidfd)
    copy = system_call(_PIDFD_GETFD, pidfd, number, 0)
    stack.callback(os.close, copy)
    return copy
