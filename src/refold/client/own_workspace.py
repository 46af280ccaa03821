"""A new folder for one conversation, named by its user or after the conversation's id.

`host` decides when there is one; `folders` lists those in which others can begin.
"""

import re
from contextlib import suppress
from itertools import count
from pathlib import Path

from refold.errors import BadInput

_NAME_PATTERN = re.compile(r"[^\W_][\w .()-]{0,58}[\w()-]|[^\W_]")


def make_workspace(directory: Path, name: str, otherwise: str) -> Path:
    """Make a folder of this name in `directory`, or with a number behind it. Raises `BadInput`.

    Without a name it is `otherwise`.
    """
    name = name.strip()
    if name and not _NAME_PATTERN.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} cannot be the name of a folder: write at most 60 letters, digits, "
            "spaces and - _ . ( ), a letter or digit in front"
        )
    name = name or otherwise
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in count(1):
        path = directory / (name if number == 1 else f"{name} {number}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise AssertionError("a number is free")
