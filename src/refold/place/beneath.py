"""Descriptors of what lies beneath a directory, with no link followed on the way.

A path that was resolved holds no links. Where one is met all the same, somebody put
it there since, and the way ends. The kernel looks after that in one call where it can
(`openat2`); elsewhere we go step by step. Which files may be opened is not decided
here, nor what is read from them: `files` does that.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

# Opens a path below a directory's descriptor. Raises `OSError`: ELOOP where a link is
# in the way, EXDEV where the path would leave the directory.
Opening: TypeAlias = Callable[[int, str, int], int]

LONGEST = 4095  # bytes of a path, as the kernel counts
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

_NUMBER = 437  # of the system call openat2, on every machine that has it
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 100  # somebody renames directories while we look


def beneath(top: int, path: str, flags: int) -> int:
    """Open `path`, relative, below the directory `top`, as this machine does it best."""
    return _best()(top, path, flags)


def by_walking(top: int, path: str, flags: int) -> int:
    """The same with one call for each part of the path."""
    *way, last = _parts(path)
    here = top
    try:
        for part in way:
            below = step(here, part, FOLDER)
            here, before = below, here
            if before != top:
                os.close(before)
        return step(here, last, flags)
    finally:
        if here != top:
            os.close(here)


def by_openat2() -> Opening | None:
    """The same with one call of the kernel's; None where the kernel has none for us."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    class How(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long

    def opened(top: int, path: str, flags: int) -> int:
        name = os.fsencode("/".join(_parts(path)))
        # O_NOFOLLOW would hide that the last part is a link.
        how = How(flags & ~os.O_NOFOLLOW, 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
        for _ in range(_TRIES):
            found = call(
                ctypes.c_long(_NUMBER),
                ctypes.c_long(top),
                ctypes.c_char_p(name),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if found >= 0:
                return found
            error = ctypes.get_errno()
            if error not in (errno.EAGAIN, errno.EINTR):
                raise OSError(error, os.strerror(error))
        raise OSError(errno.ELOOP, "renamed too often")

    return opened if _works(opened) else None


@cache
def _best() -> Opening:
    return by_openat2() or by_walking


def _works(opened: Opening) -> bool:
    # Old kernels have no such call, and some containers forbid it.
    top = os.open("/", FOLDER)
    try:
        os.close(opened(top, ".", FOLDER))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _parts(path: str) -> list[str]:
    if len(os.fsencode(path)) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, "path too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, "leaves its directory")
    return parts or ["."]


def step(here: int, part: str, flags: int) -> int:
    """Open one name in the directory `here`, and nothing that it links to."""
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=here)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link") from None
        raise
