"""Keys a person gave us, in a file only they can read. Never in a project.

An environment variable always wins over the file.
"""

import os
from pathlib import Path

from refold.errors import BadInput


def read(file: Path) -> dict[str, str]:
    """Keys by provider name. Raises `BadInput` if others can read the file."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return {}
    if found.st_mode & 0o077:
        raise BadInput(f"{file} holds keys and others can read it: chmod 600 {file}")
    import tomllib

    try:
        keys = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the keys in {file} cannot be read: {error}") from error
    return {name: key for name, key in keys.items() if isinstance(key, str)}


def store(file: Path, provider: str, key: str) -> None:
    """Add or replace one key."""
    keys = read(file) | {provider: key}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        out.writelines(
            f"{_quoted(name)} = {_quoted(value)}\n" for name, value in keys.items()
        )
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def _quoted(text: str) -> str:
    # A basic string of TOML is a JSON string, as far as keys and names go.
    import json

    return json.dumps(text)
