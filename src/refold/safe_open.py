"""Opens refold's own files never through a link, and other files only if they are regular.

Writing: another program may have put a link below the data directory, and the target of the
link must not be written. Only the directory that the user chose for all data may be a link.
`place.private_files` writes settings and notes, which users may store elsewhere.

Reading: reading a pipe can block forever, a device may never end, and opening one can already
have an effect. So only regular files are read, up to the requested size.

A link in place of a journal would make refold write or truncate any file of the user. Only
programs that can write to the data directory can create one, so it can only be planted in
advance; there is no race, and no descriptors are held for the whole path.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

LINKED = (
    "a link stands in its place, and nothing is written through one: move it away (only "
    "REFOLD_HOME itself may be a link)"
)


def open_checked(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a file like `os.open`. If it is a link, raise an `OSError` that says so."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINKED, str(path)) from error
        raise


def create_file(path: Path, content: bytes) -> None:
    """Create a file with this content, which only its owner can read.

    Raises `OSError`, also if the file exists.
    """
    with open(open_checked(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as out:
        out.write(content)


def create_complete_file(path: Path, content: bytes) -> None:
    """Create a file that has all of its content from the moment when it exists.

    So no process can read a partial file, and no crash can leave a partial file. Otherwise
    this function is like `create_file`.
    """
    _check_free(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        number = open_checked(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(number, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(number)
        name_file(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def name_file(temporary: Path, path: Path) -> None:
    """Rename the complete file `temporary` to `path`.

    Raises `FileExistsError` if `path` exists.
    """
    try:
        os.link(temporary, path)  # unlike a rename, this fails if the file exists
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        _check_free(path)
        temporary.rename(path)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def read_regular(
    path: str | Path,
    max_bytes: int,
    *,
    follow: bool = True,
    directory: int | None = None,
    check: Callable[[os.stat_result], None] | None = None,
) -> tuple[bytes, int]:
    """Read the first `max_bytes` bytes of a regular file. Return them, and the size of the
    file.

    With `follow`, a link at the end of the path is followed. `path` is relative to the
    descriptor `directory`, if that is given. `check` gets the file's status and raises an error
    for a file that must not be read; without it, every file that is not regular is refused.
    Raises `OSError`.
    """
    check = check or _refuse_irregular
    check(os.stat(path, dir_fd=directory, follow_symlinks=follow))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    number = os.open(path, flags | (0 if follow else os.O_NOFOLLOW), dir_fd=directory)
    try:
        about = os.fstat(number)
        check(about)  # another file may have got this name since the first check
        pieces, left = list[bytes](), max_bytes
        while left > 0:
            piece = os.read(number, min(left, max(about.st_size + 1, 65536)))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(number)
    data = b"".join(pieces)
    return data, len(data) if left else max(about.st_size, len(data))


def _refuse_irregular(status: os.stat_result) -> None:
    """Raise an `OSError` unless the status is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, not a file")


def check_no_links(*directories: Path) -> None:
    """Raise the `OSError` of `open_checked` if one of the paths is a link.

    A path that does not exist is accepted.
    """
    for directory in directories:
        if directory.is_symlink():
            raise OSError(errno.ELOOP, LINKED, str(directory))
