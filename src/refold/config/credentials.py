"""Keys a person gave us, in a file only they can read. Never in a project.

An environment variable always wins over the file.
"""

import os
from pathlib import Path

from refold.errors import BadInput


def read(file: Path) -> dict[str, str]:
    """Keys by provider name. Raises `BadInput` if others can read the file."""
    import tomllib

    try:
        if file.stat().st_mode & 0o077:
            raise BadInput(f"{file} holds keys and others can read it: chmod 600 {file}")
        keys = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the keys in {file} cannot be read: {error}") from error
    return {name: key for name, key in keys.items() if isinstance(key, str)}


def store(file: Path, provider: str, key: str) -> None:
    """Add or replace one key. Raises `BadInput` where the file cannot be written."""
    keys = read(file) | {provider: key}
    text = "".join(f"{quoted(name)} = {quoted(value)}\n" for name, value in keys.items())
    try:
        _write(file, text)
    except OSError as error:
        raise BadInput(f"the key cannot be written to {file}: {error}") from error


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    # One left by a crash, or put there by somebody, may have other rights.
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def quoted(text: str) -> str:
    """`text` as a string of TOML: one of JSON, but for DEL and what is outside ASCII."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
