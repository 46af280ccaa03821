"""How files and directories of our own are opened to be written: never through a link.

A link below our data directory was put there by somebody else, and what it leads to is not
ours to write. Only the directory that a person chose for all of it may be one, for it is
their word where it leads. Settings and notes, which people write by hand and may keep
elsewhere, are `place.private`'s business.
"""

import errno
import os
from pathlib import Path

LINKED = (
    "a link stands in its place, and nothing is written through one: move it away (only "
    "REFOLD_HOME itself may be a link)"
)


def opened(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """`os.open` that raises an `OSError` which says so where a link stands."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINKED, str(path)) from error
        raise


def made(path: Path, content: bytes) -> None:
    """A new file with this content, for its owner alone. Raises `OSError`, also if it is there."""
    with open(opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as out:
        out.write(content)


def unlinked(*directories: Path) -> None:
    """Raises the same `OSError` where one of them is a link. One may be missing."""
    for each in directories:
        if each.is_symlink():
            raise OSError(errno.ELOOP, LINKED, str(each))
