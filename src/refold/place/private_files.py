"""Files of refold that only the user may read: replaced whole, or not at all.

Some hold what the user decided: trusted folders, rules, tools of MCP servers. Without its content
such a file must not count as one that was never there: what was refused or pinned would be allowed.
So `read_decisions` raises `DamagedFile` for a file that is empty, cut or invalid, and its
readers treat nothing as accepted. `whole` marks the end of a text whose beginning alone
makes sense.
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
    """Replace the content of `file` by `text`. A link stays a link. Raises `OSError`."""
    file = file.resolve()
    make_directories(file.parent)
    temporary = file.with_name(f".{file.name}.new")
    # One left by a crash or by another program may have another mode.
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
    """Lock `file`, so that two processes do not lose each other's changes.

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
    """Create a directory and its missing parents, for the user alone. Raises `OSError`."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


class DamagedFile(BadInput):
    """What the user decided is lost. The message names the file and what to do."""


def read_decisions(
    file: Path, max_bytes: int, parse: Callable[[bytes], T], consequence: str
) -> T | None:
    """What `parse` makes of the file; None if there is none. Raises `DamagedFile`.

    `parse` raises `ValueError` or an error of msgspec for invalid content. `consequence`
    says what is ignored then and what to do, as a clause after "so".
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
    """`text` of TOML between two comments, so that a cut file is recognized."""
    return f"{_HEADER_LINE}{text}{_FOOTER_LINE}"


def _check_whole(content: bytes, size: int, max_bytes: int) -> None:
    if not content.strip(b"\0 \t\r\n"):
        raise ValueError("it is empty")
    if size > max_bytes:
        raise ValueError(f"it has {size:,} bytes, at most {max_bytes:,} are read")
    if content.startswith(_HEADER_LINE.encode()) and not content.endswith(
        _FOOTER_LINE.encode()
    ):
        raise ValueError("its end is missing")
