"""Sets a mode with the setgid bit for a command, on directories only.

Shared repositories need the bit: new files in a directory with it get its group. But a program
file with the bit would run with the rights of its group, for every user. So the kernel stops
each call that sets the bit, and this module sets the mode of exactly the directory that it
checked.
"""

import errno
import os
import re
import stat

from refold.place.seccomp import MODE_ARGUMENTS, native_architecture
from refold.place.stopped_call import StoppedCall

_MAX_PATH_BYTES = 4096  # the length of a path
_AT_FDCWD = 0xFFFFFF9C  # -100 as 32 bits: the path is relative to the current directory
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000  # flags of fchmodat2
_OWN_DESCRIPTOR = re.compile(rb"/proc/(?:thread-)?self/fd/(\d+)")


def is_mode_call(number: int) -> bool:
    """Whether the system call `number` sets a mode, so that `set_mode` answers it."""
    return _call_name(number) != ""


def set_mode(stopped_call: StoppedCall) -> None:
    """Set the mode that the stopped call asks for, with the setgid bit.

    Raises `OSError` if the file is not a directory: a program with that bit runs with the rights
    of its group. Also raises it if the caller is a process of another user.
    """
    if os.stat(f"/proc/{stopped_call.pid}").st_uid != os.geteuid():
        raise OSError(errno.EPERM, "a caller who is not the user")
    name = _call_name(stopped_call.number)
    file = _open_file(stopped_call, name)
    if not stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EPERM, "a file that would run with the rights of its group")
    mode = stopped_call.arguments[MODE_ARGUMENTS[name]] & 0o7777
    # An O_PATH descriptor cannot be used to set a mode, but its link in /proc can.
    os.chmod(f"/proc/self/fd/{file}", mode)


def _open_file(stopped_call: StoppedCall, name: str) -> int:
    """Return a descriptor of the file whose mode the stopped call sets.

    `name` is the name of that system call.
    """
    first, second, _, flags = stopped_call.arguments[:4]
    if name == "fchmod":
        return stopped_call.descriptor(first)
    if name != "fchmodat2":  # the others have no flags
        flags = 0
    if name == "chmod":
        directory, address = _AT_FDCWD, first
    else:
        directory, address = first & 0xFFFFFFFF, second  # an int is 32 bits
    memory = stopped_call.memory(address, _MAX_PATH_BYTES)
    path, _, _ = memory.partition(b"\0")
    # To us, /proc/self would be our own process, and not the caller.
    if own := _OWN_DESCRIPTOR.fullmatch(path):
        return stopped_call.descriptor(int(own[1]))
    if not path:
        if flags & _EMPTY_PATH and directory != _AT_FDCWD:
            return stopped_call.descriptor(directory)
        raise OSError(errno.ENOENT, "an empty path")
    base = "cwd" if directory == _AT_FDCWD else f"fd/{directory}"
    return stopped_call.open(path, base, follow=not flags & _NO_FOLLOW)


def _call_name(number: int) -> str:
    """Return the name of the system call `number` if it sets a mode; otherwise ""."""
    architecture = native_architecture()
    if architecture is None:
        return ""
    names = (name for name in MODE_ARGUMENTS if architecture.calls.get(name) == number)
    return next(names, "")
