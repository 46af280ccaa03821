"""What a GGUF file says of its model: its name, its context window, its chat template.

Only the header is read. The format: github.com/ggml-org/ggml, docs/gguf.md.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from refold.errors import BadInput, said_by

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_KEYS = 10_000
_LONGEST = 4_000_000  # bytes of one text
# The sizes of numbers by their types; 8 is text, 9 a list.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UNSIGNED = {0: "<B", 2: "<H", 4: "<I", 10: "<Q"}
_TEXT, _LIST = 8, 9


class GgufHeader(Struct, frozen=True):
    """`context` is in tokens, 0 if the file does not say it."""

    name: str = ""
    architecture: str = ""
    context: int = 0
    has_template: bool = False


def read_header(path: Path) -> GgufHeader:
    """Raises `BadInput` where the file is not one that llama.cpp can load."""
    try:
        with path.open("rb") as file:
            found = _keys(file)
    except (struct.error, UnicodeDecodeError, _Bad, MemoryError) as error:
        reason = str(error) or "its header is cut off"
        raise BadInput(f"{path} is not a GGUF file: {reason}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {said_by(error)}") from error
    architecture = str(found.get("general.architecture", ""))
    context = found.get(f"{architecture}.context_length", 0)
    return GgufHeader(
        str(found.get("general.name", "")),
        architecture,
        context if isinstance(context, int) else 0,
        bool(found.get("tokenizer.chat_template")),
    )


class _Bad(Exception):
    pass


def _keys(file: BinaryIO) -> dict[str, str | int]:
    if file.read(4) != _MAGIC:
        raise _Bad("it does not begin with GGUF")
    version = _number(file, "<I")
    if version not in _VERSIONS:
        raise _Bad(f"its version is {version}, and {_VERSIONS} are known")
    _number(file, "<Q")  # tensors
    count = _number(file, "<Q")
    if count > _MOST_KEYS:
        raise _Bad(f"it claims {count:,} keys")
    found = dict[str, str | int]()
    for _ in range(count):
        key = _text(file)
        value = _value(file, _number(file, "<I"))
        if value is not None:
            found[key] = value
    return found


def _value(file: BinaryIO, kind: int) -> str | int | None:
    """A text or a whole number; None for what is passed over."""
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        of, count = _number(file, "<I"), _number(file, "<Q")
        _pass_over(file, of, count)
        return None
    if kind in _UNSIGNED:
        return _number(file, _UNSIGNED[kind])
    _read(file, _SIZES.get(kind, 0) or _unknown(kind))
    return None


def _pass_over(file: BinaryIO, kind: int, count: int) -> None:
    if kind == _TEXT:
        for _ in range(count):
            size = _number(file, "<Q")
            _read(file, size)
        return
    file.seek(count * (_SIZES.get(kind, 0) or _unknown(kind)), 1)


def _unknown(kind: int) -> int:
    raise _Bad(f"it has a value of type {kind}, which is not known")


def _number(file: BinaryIO, how: str) -> int:
    return int(struct.unpack(how, _read(file, struct.calcsize(how)))[0])


def _text(file: BinaryIO) -> str:
    return _read(file, _number(file, "<Q")).decode()


def _read(file: BinaryIO, size: int) -> bytes:
    if size > _LONGEST:
        raise _Bad(f"it claims a text of {size:,} bytes")
    found = file.read(size)
    if len(found) < size:
        raise _Bad("its header is cut off")
    return found
