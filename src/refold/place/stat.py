"""What is a file to read and write, and what is not; and why the system said no.

`files` and `atomic_write` both go by this.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from refold.errors import ToolFailed
from refold.place.port import Kind
from refold.safe_open import read_regular

# O_NONBLOCK: opening a pipe that nobody writes to must not wait.
LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def refuse_odd(about: os.stat_result, name: str) -> None:
    """Raise for all but regular files."""
    kind = kind_of(about.st_mode)
    if kind == "directory":
        raise ToolFailed(f"{name} is a directory: list_files shows what is in it.")
    if kind == "link":  # `real` had followed them all
        raise OSError(errno.ELOOP, "links")
    if kind != "file":
        raise ToolFailed(
            f"{name} is a device, pipe or socket, not a file to read or write."
        )


def regular(folder: int, last: str, name: str, at_most: int) -> bytes:
    """The file `last` in a directory, up to `at_most` bytes. Anything else raises."""
    refuse = partial(refuse_odd, name=name)
    return read_regular(last, at_most, follow=False, directory=folder, check=refuse)[0]


@contextmanager
def told(doing: str) -> Generator[None]:
    """Turn the system's errors into one sentence for the model."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"Cannot {doing}: {why(error)}.") from error


def why(error: OSError) -> str:
    number = error.errno or errno.EIO
    return _WHY.get(number) or os.strerror(number).lower()


_WHY = {
    errno.ENOENT: "there is no such file or directory",
    errno.EEXIST: "a part of the path is a file, or somebody made it in the meantime",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EACCES: "the system does not permit it",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full",
    errno.ELOOP: "its symbolic links go round in a circle, or change",
    errno.EXDEV: "the path leaves the directory it began in",
    errno.ENAMETOOLONG: "the name is too long",
}
