"""Write one setting into the user's file, and leave the rest of it as it is."""

import re
from pathlib import Path

from refold.config.credentials import quoted
from refold.errors import BadInput
from refold.place.private import write

# `main` in the table [models], before the next table begins.
_MAIN = re.compile(
    r"^\s*\[models\][^\n]*\n(?:(?!\s*\[)[^\n]*\n)*?(main\s*=[^\n]*)", re.MULTILINE
)


def remember(file: Path, key: str, value: str) -> None:
    """Set a top-level text `key`, keeping comments, order and tables.

    The main model is `model`, or `main` in the table `[models]` where that stands.
    Raises `BadInput` where the file cannot be written.
    """
    file = file.resolve()  # a link to it stays one
    try:
        write(file, _changed(_read(file), key, value))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{key} = {value!r} cannot be remembered in {file}: {error}"
        ) from error


def _changed(before: str, key: str, value: str) -> str:
    if key == "model" and (main := _MAIN.search(before)):
        return f"{before[: main.start(1)]}main = {quoted(value)}{before[main.end(1) :]}"
    line = f"{key} = {quoted(value)}\n"
    found = re.search(rf"^{re.escape(key)}\s*=.*\n?", before, re.MULTILINE)
    table = re.search(r"^\s*\[", before, re.MULTILINE)
    if found and (not table or found.start() < table.start()):
        return before[: found.start()] + line + before[found.end() :]
    return line + before


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
