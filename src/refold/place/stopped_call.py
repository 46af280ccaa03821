"""Reads and answers a system call that the kernel has stopped.

It gives access to the caller's memory and files. `socket_guard`, `directory_modes` and
`datagram_pairs` decide about the call. See seccomp_unotify(2).
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
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10  # flags of openat2
_ADDRESS_LIMIT = 1 << 63  # the kernel's own half of the addresses; files cannot seek there
# Only a newline ends a line: a name that a command chose may contain any other character.
_THREAD_GROUP = re.compile(rb"^Tgid:\t(\d+)$", re.MULTILINE)


class StoppedCall:
    """A stopped system call that waits for our answer. All methods raise `OSError`.

    `id` is the kernel's number for this call, `number` the number of the system call. `stack`
    closes what is opened for the answer.
    """

    def __init__(self, notice: bytes, stack: ExitStack) -> None:
        self.id, self.pid, _, self.number, _, _, *self.arguments = NOTICE_STRUCT.unpack(
            notice
        )
        self._stack = stack

    def descriptor(self, number: int) -> int:
        """Return our own descriptor of the file that the caller has open as `number`."""
        with open(f"/proc/{self.pid}/status", "rb") as file:
            leader = _THREAD_GROUP.search(file.read())
        if not leader:
            raise OSError(errno.ESRCH, "a caller that is gone")
        # An int is 32 bits of its argument. Descriptors belong to the process, not the thread.
        return descriptor_of(int(leader[1]), number & 0xFFFFFFFF, self._stack)

    def memory(self, address: int, length: int) -> bytes:
        """Return `length` bytes of the caller's memory, or fewer at the end of a mapping."""
        if address >= _ADDRESS_LIMIT:
            raise OSError(errno.EFAULT, "an address that no process has")
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)

    def write(self, address: int, data: bytes, check: Callable[[], None]) -> None:
        """Write `data` to the caller's memory.

        `check` raises if the caller no longer waits. `check` is called after the memory was
        opened, because the process id could belong to another process before.
        """
        if address >= _ADDRESS_LIMIT:
            raise OSError(errno.EFAULT, "an address that no process has")
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            check()
            memory.seek(address)
            memory.write(data)

    def open(self, path: bytes, base: str = "cwd", *, follow: bool = True) -> int:
        """Return an O_PATH descriptor of the file that the caller calls `path`.

        A relative path starts from `base`, a link in the caller's directory in /proc. Without
        `follow`, a link at the end of the path is opened itself.
        """
        start = os.fsencode(os.readlink(f"/proc/{self.pid}/{base}"))
        root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stack.callback(os.close, root)
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        open_how = struct.pack("=QQQ", flags, 0, _NO_MAGICLINKS | _IN_ROOT)
        file = system_call(
            _OPENAT2, root, os.path.join(start, path), open_how, len(open_how)
        )
        self._stack.callback(os.close, file)
        return file


def descriptor_of(process: int, number: int, stack: ExitStack) -> int:
    """Return our own copy of the descriptor `number` of a process. Raises `OSError`.

    `stack` closes it.
    """
    pidfd = os.pidfd_open(process)
    stack.callback(os.close, pidfd)
    copy = system_call(_PIDFD_GETFD, pidfd, number, 0)
    stack.callback(os.close, copy)
    return copy
