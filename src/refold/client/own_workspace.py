"""Makes a new folder for one conversation, named by its user or after the conversation's id.

`host` decides when one is made; `folders` lists folders that exist.
"""

import re
from contextlib import suppress
from itertools import count
from pathlib import Path

from refold.errors import BadInput

# Letters, digits and `_ . ( ) -` and spaces; no `_` or sign at the start, no space or dot at the
# end.
_NAME_PATTERN = re.compile(r"[^\W_][\w .()-]{0,58}[\w()-]|[^\W_]")
_MAX_SHOWN_CHARS = 80  # of a wrong name in the error


def make_workspace(directory: Path, name: str, otherwise: str) -> Path:
    """Make a folder in `directory`, and return its path.

    The folder is called `name`, or `otherwise` if `name` is "". If a folder of that name
    exists, a number is appended. Raises `BadInput` for an invalid name.
    """
    own_name = name.strip()
    if own_name and not _NAME_PATTERN.fullmatch(own_name):
        raise BadInput(
            f"{own_name[:_MAX_SHOWN_CHARS]!r} cannot be the name of a folder: write at most 60 letters, digits, "
            "spaces and - _ . ( ), a letter or digit in front"
        )
    base = own_name or otherwise
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in count(1):
        path = directory / (base if number == 1 else f"{base} {number}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise AssertionError("a number is free")
