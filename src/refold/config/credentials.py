"""Stores the user's API keys in a file that only the user can read, outside of projects.

`api_keys` decides which of several keys is used.
"""

import re
from pathlib import Path

from refold.errors import BadInput, reason_of
from refold.place.private_files import file_lock, write

_OTHERS_ACCESS = 0o077  # the permission bits of the group and of all others


def read(file: Path) -> dict[str, str]:
    """Return the keys in `file`, by provider name.

    Raises `BadInput` if other users can read the file.
    """
    return _parse(file, _text(file))


def store(file: Path, provider: str, key: str) -> None:
    """Add or replace the key of one provider.

    Raises `BadInput` if the file cannot be written.
    """
    _change(file, provider, key)


def remove(file: Path, provider: str) -> bool:
    """Remove the key of `provider`. Return False if the file has no such key.

    Raises `BadInput` if the file cannot be written.
    """
    return _change(file, provider, None)


def exposure_warning(file: Path) -> str:
    """Return a warning if other users have access to the directory of `file`, otherwise ""."""
    try:
        mode = file.parent.stat().st_mode
    except FileNotFoundError:
        return ""
    if not mode & _OTHERS_ACCESS:
        return ""
    return f"others can look into {file.parent}: chmod 700 {file.parent}"


def quote_toml(text: str) -> str:
    """Return `text` as a TOML string. Only DEL is escaped differently from JSON."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(file: Path) -> str:
    """Return the content of the file of keys; "" if it does not exist.

    Raises `BadInput` if it cannot be read, or if other users can read it.
    """
    try:
        if file.stat().st_mode & _OTHERS_ACCESS:
            raise BadInput(f"{file} holds keys and others can read it: chmod 600 {file}")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the keys in {file} cannot be read: {reason_of(error)}") from error


def _parse(file: Path, text: str) -> dict[str, str]:
    """Return the keys by provider. Values that are not strings are left out."""
    if not text:
        return {}
    import tomllib

    try:
        keys = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"the keys in {file} cannot be read: {error}") from error
    return {name: key for name, key in keys.items() if isinstance(key, str)}


def _change(file: Path, provider: str, key: str | None) -> bool:
    """Set the key, or remove it if `key` is None.

    Return whether the file had a key of `provider` before.
    """
    if key is None and not file.exists():
        return False
    file = file.resolve()  # so that a link stays a link
    try:
        with file_lock(file):
            before = _text(file)
            keys = _parse(file, before)
            existed = keys.pop(provider, None) is not None
            if key is None and not existed:
                return False
            after = _change_line(before, provider, key)
            new_keys = keys if key is None else keys | {provider: key}
            if not _has_exactly(after, new_keys):
                # Changing one line cannot repair the file, so all lines are written again.
                lines = [
                    f"{quote_toml(name)} = {quote_toml(value)}\n"
                    for name, value in new_keys.items()
                ]
                after = "".join(lines)
            write(file, after)
    except OSError as error:
        raise BadInput(
            f"the keys in {file} cannot be written: {reason_of(error)}"
        ) from error
    return existed


def _change_line(text: str, provider: str, key: str | None) -> str:
    """Return `text` with the line of `provider` replaced or added; removed if `key` is None."""
    line = "" if key is None else f"{quote_toml(provider)} = {quote_toml(key)}\n"
    spellings = (provider, f'"{provider}"', f"'{provider}'")
    names = "|".join(map(re.escape, spellings))
    match = re.search(rf"^[ \t]*(?:{names})[ \t]*=.*\n?", text, re.MULTILINE)
    if match:
        return text[: match.start()] + line + text[match.end() :]
    # A new line goes before the first table. Below its header, it would belong to it.
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    end = table.start() if table else len(text)
    above, below = text[:end], text[end:]
    if above and not above.endswith("\n"):
        above += "\n"
    return above + line + below


def _has_exactly(text: str, keys: dict[str, str]) -> bool:
    """Return whether the strings in the TOML `text` are `keys`; False if it is invalid."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return {name: key for name, key in table.items() if isinstance(key, str)} == keys
