"""Files of refold that only the user may read: replaced whole, or not at all."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


def write(file: Path, text: str) -> None:
    """`text` instead of what was there. A link stays one. Raises `OSError`."""
    file = file.resolve()
    make_directories(file.parent)
    temporary = file.with_name(f".{file.name}.new")
    # One left by a crash, or put there by somebody, may have other rights.
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def file_lock(file: Path) -> Generator[None]:
    """While two processes change `file`, neither loses what the other wrote.

    Raises `OSError`.
    """
    opened = open_lock(file.with_name(f".{file.name}.lock"))
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def open_lock(file: Path) -> int:
    """A file to lock, created if it does not exist; closing the descriptor releases the
    lock. Raises `OSError`.
    """
    make_directories(file.parent)
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def make_directories(directory: Path) -> None:
    """Create it with all missing parents, each for the user alone. Raises `OSError`."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
