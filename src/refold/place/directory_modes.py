"""Gives a setgid bit to directories, and to nothing else, on behalf of a command.

Shared repositories need it: new files in such a directory get its group. A file with the bit
would run with the rights of the group, for everybody. The kernel stops each call that sets it,
and the mode is set here, on the very directory that was checked.
"""

import errno
import os
import re
import stat

from refold.place.seccomp import MODE_ARGUMENTS, native_architecture
from refold.place.stopped_call import StoppedCall

_MOST_BYTES = 4096  # of a path
_AT_FDCWD = 0xFFFFFF9C
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000  # flags of fchmodat2
_OWN_DESCRIPTOR = re.compile(rb"/proc/(?:thread-)?self/fd/(\d+)")


def is_mode_call(number: int) -> bool:
    """Whether this module answers the system call `number`."""
    return _call_name(number) != ""


def set_mode(stopped_call: StoppedCall) -> None:
    """Set the mode that the caller asks for, on a directory only. Raises `OSError`."""
    if os.stat(f"/proc/{stopped_call.pid}").st_uid != os.geteuid():
        raise OSError(errno.EPERM, "a caller who is not the user")
    name = _call_name(stopped_call.number)
    file = _open_file(stopped_call, name)
    if not stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EPERM, "a file that would run with the rights of its group")
    mode = stopped_call.arguments[MODE_ARGUMENTS[name]] & 0o7777
    # An O_PATH descriptor accepts no mode, but its link in /proc does.
    os.chmod(f"/proc/self/fd/{file}", mode)


def _open_file(stopped_call: StoppedCall, name: str) -> int:
    base, address, _, flags = stopped_call.arguments[:4]
    if name == "fchmod":
        return stopped_call.descriptor(base)
    if name == "chmod":
        base, address, flags = _AT_FDCWD, base, 0
    path = stopped_call.memory(address, _MOST_BYTES).partition(b"\0")[0]
    base &= 0xFFFFFFFF
    if own := _OWN_DESCRIPTOR.fullmatch(path):
        return stopped_call.descriptor(int(own[1]))
    if not path:
        if name == "fchmodat2" and flags & _EMPTY_PATH and base != _AT_FDCWD:
            return stopped_call.descriptor(base)
        raise OSError(errno.ENOENT, "an empty path")
    follow = name != "fchmodat2" or not flags & _NO_FOLLOW
    return stopped_call.open(
        path, "cwd" if base == _AT_FDCWD else f"fd/{base}", follow=follow
    )


def _call_name(number: int) -> str:
    known = native_architecture()
    names = MODE_ARGUMENTS if known else ()
    return next((n for n in names if known and known.calls.get(n) == number), "")
