"""The system calls that a journal needs, and an explanation for each error.

Everything that changes a disk uses `Disk`, so that a test can replace it by a disk that is
full, fails or loses power at any call. `journal_writer`, `writer_lock` and `blobs` decide
what is written where.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from refold.errors import SYSTEM_ERROR_ADVICE, JournalError
from refold.safe_open import check_no_links, open_checked


class Disk:
    """The system calls on the real disk. They raise `OSError`."""

    def open(self, path: Path, *, new: bool = False) -> int:
        """Open a file for reading and writing. Refuse a link.

        Only the owner can access a new file.
        """
        if not new:
            return open_checked(path, os.O_RDWR)
        file = open_checked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.fchmod(file, 0o600)  # whatever the umask
        return file

    def close(self, file: int) -> None:
        os.close(file)

    def mkdir(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # the umask may have removed some of these rights

    def write(self, file: int, data: bytes, offset: int) -> None:
        """Write all of `data`. If this raises, a part may have been written."""
        count = os.pwrite(file, data, offset)
        while count < len(data):  # a short write is not an error yet
            count += os.pwrite(file, data[count:], offset + count)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        """Write the content to the disk: it then survives a power failure."""
        if sys.platform == "darwin":
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(file)

    def sync_directory(self, path: Path) -> None:
        """Write the names in a directory to the disk: they then survive a power failure."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)


def make_directories(path: Path, disk: Disk) -> list[Path]:
    """Create `path` and its missing parents. Return the created directories, lowest first.

    Raises `OSError` if `path` is a link.
    """
    check_no_links(path)
    missing = list[Path]()
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        try:
            disk.mkdir(directory)
            # Otherwise a power failure could remove its name with all content.
            disk.sync_directory(directory.parent)
        except FileExistsError:  # created by another process meanwhile
            if not directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory") from None
    return missing


@contextmanager
def as_journal_errors(action: str, path: Path) -> Generator[None]:
    """Convert an `OSError` into a `JournalError` that says what failed, and why."""
    try:
        yield
    except OSError as error:
        raise JournalError(_sentence(action, path, error)) from error


def _sentence(action: str, path: Path, error: OSError) -> str:
    words = error.strerror or str(error)
    advice = SYSTEM_ERROR_ADVICE.get(error.errno or 0)
    return f"cannot {action} {path}: {words}" + (f"; {advice}" if advice else "")
