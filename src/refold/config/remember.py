"""Write one setting into the user's file, and leave the rest of it as it is."""

import re
from pathlib import Path

from refold.config.credentials import quoted
from refold.errors import BadInput


def remember(file: Path, key: str, value: str) -> None:
    """Set a top-level text `key`, keeping comments, order and tables.

    Raises `BadInput` where the file cannot be written.
    """
    file = file.resolve()  # a link to it stays one
    try:
        _write(file, _changed(_read(file), key, value))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{key} = {value!r} cannot be remembered in {file}: {error}"
        ) from error


def _changed(before: str, key: str, value: str) -> str:
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


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
