"""Reads files that hold what the user decided: trusted folders, rules, tools of MCP servers.

Without its content such a file must not count as one that was never there: what was refused or
pinned would be allowed. So a file that is empty, cut or makes no sense is a `DamagedFile`, and
whoever reads it treats nothing as accepted. `private_files` writes them, whole or not at all;
`whole` marks the end of a text whose beginning alone would make sense.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from refold.errors import BadInput, said_by
from refold.safe_open import read_regular

T = TypeVar("T")
_FIRST = (
    "# Written by refold. The last line has to stay: it shows that the file is whole.\n"
)
_LAST = "# end of the file\n"


class DamagedFile(BadInput):
    """What the user decided is lost. The message names the file and what to do."""


def read_decisions(
    file: Path, most: int, parse: Callable[[bytes], T], consequence: str
) -> T | None:
    """What `parse` makes of the file; None if there is none. Raises `DamagedFile`.

    `parse` raises `ValueError` or an error of msgspec for what makes no sense. `consequence`
    says what does not count then and what to do, in words that follow "so".
    """
    try:
        content, size = read_regular(file, most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedFile(
            f"{file} cannot be read: {said_by(error)}, so {consequence}"
        ) from error
    try:
        _check_whole(content, size, most)
        return parse(content)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise DamagedFile(f"{file} is damaged: {error}, so {consequence}") from error


def whole(text: str) -> str:
    """`text` of TOML between two comments, so that a part of it is known for one."""
    return f"{_FIRST}{text}{_LAST}"


def _check_whole(content: bytes, size: int, most: int) -> None:
    if not content.strip(b"\0 \t\r\n"):
        raise ValueError("it is empty")
    if size > most:
        raise ValueError(f"it has {size:,} bytes, at most {most:,} are read")
    if content.startswith(_FIRST.encode()) and not content.endswith(_LAST.encode()):
        raise ValueError("its end is missing")
