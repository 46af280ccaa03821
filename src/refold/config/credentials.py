"""Stores the user's API keys in a file that only the user can read. Never in a project.

`api_keys` decides which of several keys is used.
"""

import re
from pathlib import Path

from refold.errors import BadInput, reason_of
from refold.place.private_files import file_lock, write


def read(file: Path) -> dict[str, str]:
    """Keys by provider name. Raises `BadInput` if others can read the file."""
    return _parse(file, _text(file))


def store(file: Path, provider: str, key: str) -> None:
    """Add or replace one key. Raises `BadInput` if the file cannot be written."""
    _change(file, provider, key)


def remove(file: Path, provider: str) -> bool:
    """Remove a key; False if there was none. Raises `BadInput` as `store` does."""
    return _change(file, provider, None)


def exposure_warning(file: Path) -> str:
    """A warning if other users can read the directory of the file, or ""."""
    try:
        bits = file.parent.stat().st_mode & 0o077
    except FileNotFoundError:
        return ""
    return f"others can look into {file.parent}: chmod 700 {file.parent}" if bits else ""


def quote_toml(text: str) -> str:
    """`text` as a TOML string: like JSON, except for DEL and non-ASCII characters."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o077:
            raise BadInput(f"{file} holds keys and others can read it: chmod 600 {file}")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the keys in {file} cannot be read: {reason_of(error)}") from error


def _parse(file: Path, text: str) -> dict[str, str]:
    if not text:
        return {}
    import tomllib

    try:
        keys = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"the keys in {file} cannot be read: {error}") from error
    return {name: key for name, key in keys.items() if isinstance(key, str)}


def _change(file: Path, provider: str, key: str | None) -> bool:
    if key is None and not file.exists():
        return False
    file = file.resolve()  # a link to it stays one
    try:
        with file_lock(file):
            before = _text(file)
            keys = _parse(file, before)
            existed = keys.pop(provider, None) is not None
            if key is None and not existed:
                return False
            after = _change_line(before, provider, key)
            new_keys = keys if key is None else keys | {provider: key}
            if not _holds(after, new_keys):  # a change of lines cannot repair it
                after = "".join(
                    f"{quote_toml(n)} = {quote_toml(v)}\n" for n, v in new_keys.items()
                )
            write(file, after)
    except OSError as error:
        raise BadInput(
            f"the keys in {file} cannot be written: {reason_of(error)}"
        ) from error
    return existed


def _change_line(text: str, provider: str, key: str | None) -> str:
    """`text` with one line changed, and the rest unchanged."""
    line = "" if key is None else f"{quote_toml(provider)} = {quote_toml(key)}\n"
    names = "|".join(re.escape(n) for n in (provider, f'"{provider}"', f"'{provider}'"))
    match = re.search(rf"^[ \t]*(?:{names})[ \t]*=.*\n?", text, re.MULTILINE)
    if match:
        return text[: match.start()] + line + text[match.end() :]
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    end = table.start() if table else len(text)
    above = text[:end] if not text[:end] or text[:end].endswith("\n") else f"{text[:end]}\n"
    return above + line + text[end:]


def _holds(text: str, keys: dict[str, str]) -> bool:
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return {name: key for name, key in table.items() if isinstance(key, str)} == keys
