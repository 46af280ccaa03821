"""Reads and writes files of refold that only the user may read, always as a whole.

Some contain decisions of the user: trusted folders, rules, tools of MCP servers. If such a file
has lost its content, it must not count as one that never existed, because everything that was
refused would be allowed. So `read_decisions` raises `DamagedFile` for a file that is empty, cut
off or invalid, and its callers then treat nothing as accepted. A text that would still be valid
if its end were cut off is marked by `between_comments`.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from refold.errors import BadInput, reason_of
from refold.safe_open import read_regular

T = TypeVar("T")
_HEADER_LINE = (
    "# Written by refold. The last line has to stay: it shows that the file is complete.\n"
)
_FOOTER_LINE = "# end of the file\n"


def write(file: Path, text: str) -> None:
    """Replace the content of `file` by `text`, completely or not at all. Raises `OSError`.

    If `file` is a link, the file that it leads to is replaced.
    """
    file = file.resolve()
    make_directories(file.parent)
    temporary = file.with_name(f".{file.name}.new")
    # A file left by a crash or by another program may have another mode.
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def file_lock(file: Path) -> Generator[None]:
    """Hold the lock of `file` during the block, waiting until it is free.

    The lock keeps two processes from overwriting each other's changes. Raises `OSError`.
    """
    opened = open_lock(file.with_name(f".{file.name}.lock"))
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def open_lock(file: Path) -> int:
    """Open a lock file, and create it if it is missing. The caller locks the descriptor.

    Raises `OSError`. Closing the descriptor releases the lock.
    """
    make_directories(file.parent)
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def make_directories(directory: Path) -> None:
    """Create a directory and those above it that are missing, for the user only.

    Existing directories keep their mode. Raises `OSError`.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


class DamagedFile(BadInput):
    """A file with decisions of the user cannot be used.

    The message names the file and says what follows from that.
    """


def read_decisions(
    file: Path, max_bytes: int, parse: Callable[[bytes], T], consequence: str
) -> T | None:
    """Return what `parse` makes of the content of `file`; None if `file` does not exist.

    Raises `DamagedFile` if it cannot be read, or if `parse` raises `ValueError` or an error of
    msgspec. `consequence` follows "so" in the message: what does not count until then, and what
    to do.
    """
    try:
        content, size = read_regular(file, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedFile(
            f"{file} cannot be read: {reason_of(error)}, so {consequence}"
        ) from error
    try:
        _check_whole(content, size, max_bytes)
        return parse(content)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise DamagedFile(f"{file} is damaged: {error}, so {consequence}") from error


def between_comments(text: str) -> str:
    """Return the TOML `text` between two comments, so that a lost end can be detected."""
    return f"{_HEADER_LINE}{text}{_FOOTER_LINE}"


def _check_whole(content: bytes, size: int, max_bytes: int) -> None:
    """Raise `ValueError` if `content` is empty or cut off, or if `size` is over `max_bytes`."""
    if not content.strip(b"\0 \t\r\n"):
        raise ValueError("it is empty")
    if size > max_bytes:
        raise ValueError(f"it has {size:,} bytes, at most {max_bytes:,} are read")
    has_header = content.startswith(_HEADER_LINE.encode())
    if has_header and not content.endswith(_FOOTER_LINE.encode()):
        raise ValueError("its end is missing")
