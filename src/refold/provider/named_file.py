"""A file that a person named on the command line, read whole: a regular one, and bounded.

A pipe would be waited for without end, and a device may never end.
"""

import errno
import os
import stat
from pathlib import Path


def read_whole(file: Path, most: int) -> bytes:
    """What stands in `file`, links followed. Raises `OSError` with the reason in words."""
    # Looked at before it is opened: opening a device can already do something.
    _refuse_odd(os.stat(file), most)
    number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as opened:
        _refuse_odd(os.fstat(number), most)  # another one may have come under this name
        found = opened.read(most + 1)
    if len(found) > most:  # it grew meanwhile, or its size is not told
        raise _too_large(most)
    return found


def _refuse_odd(about: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, and no file")
    if about.st_size > most:
        raise _too_large(most)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
