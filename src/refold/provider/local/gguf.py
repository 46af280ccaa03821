"""Reads a GGUF file's description of its model: name, size, context window, chat template.

Only the header is read. The format: github.com/ggml-org/ggml, docs/gguf.md.
"""

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from refold.errors import BadInput, reason_of

_MAGIC_BYTES = b"GGUF"
_KNOWN_VERSIONS = (2, 3)
_MAX_KEYS = 10_000
_MAX_TEXT_BYTES = 4_000_000  # of one text
_MAX_TENSORS = 100_000
_MAX_DIMENSIONS = 8
_MAX_LAYERS = 1_000
_VALUE_BYTES = 2  # of each number that is kept of a token
# A chat template that shows tools to the model reads them in a statement.
_SHOWS_TOOLS_PATTERN = re.compile(r"\{%[^%]*(?<![\w.])tools\b")
# The sizes of numbers by their types; 8 is text, 9 a list.
_NUMBER_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_NUMBER_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
_TEXT, _LIST = 8, 9


class GgufHeader(Struct, frozen=True):
    """`context` is in tokens; figures that the file lacks are 0.

    `token_bytes` is the memory for each token of a conversation, at most: some models
    forget what is far back.
    """

    name: str = ""
    architecture: str = ""
    context: int = 0
    has_template: bool = False
    shows_tools: bool = False  # the template has a format for tools
    parameters: int = 0
    token_bytes: int = 0


def read_header(path: Path) -> GgufHeader:
    """Read the header. Raises `BadInput` if llama.cpp cannot load the file."""
    try:
        with path.open("rb") as file:
            tensors, values = _keys(file)
            parameters = sum(_weights(file) for _ in range(tensors))
    except (struct.error, UnicodeDecodeError, _InvalidFile, MemoryError) as error:
        reason = str(error) or "its header is cut off"
        raise BadInput(f"{path} is not a GGUF file: {reason}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason_of(error)}") from error
    architecture = str(values.get("general.architecture", ""))
    template = str(values.get("tokenizer.chat_template", ""))
    numbers = {
        key.removeprefix(f"{architecture}."): value
        for key, value in values.items()
        if isinstance(value, int)
    }
    return GgufHeader(
        str(values.get("general.name", "")),
        architecture,
        max(0, numbers.get("context_length", 0)),
        bool(template),
        bool(_SHOWS_TOOLS_PATTERN.search(template)),
        parameters,
        _token_bytes(numbers),
    )


class _InvalidFile(Exception):
    pass


def _token_bytes(numbers: Mapping[str, int]) -> int:
    heads = numbers.get("attention.head_count", 0)
    width = numbers.get("embedding_length", 0) // heads if heads > 0 else 0
    keys = numbers.get("attention.key_length", width)
    values = numbers.get("attention.value_length", width)
    key_value_heads = numbers.get("attention.head_count_kv", heads)
    return max(
        0, numbers.get("block_count", 0) * key_value_heads * (keys + values) * _VALUE_BYTES
    )


def _weights(file: BinaryIO) -> int:
    """The number of weights in the next tensor; its type and offset are skipped."""
    _text(file)
    count = _number(file, "<I")
    if count > _MAX_DIMENSIONS:
        raise _InvalidFile(f"it claims a tensor of {count:,} dimensions")
    size = math.prod(_number(file, "<Q") for _ in range(count))
    _number(file, "<I")
    _number(file, "<Q")
    return size


def _keys(file: BinaryIO) -> tuple[int, dict[str, str | int]]:
    """The number of tensors, and the keys with their values."""
    if file.read(4) != _MAGIC_BYTES:
        raise _InvalidFile("it does not begin with GGUF")
    version = _number(file, "<I")
    if version not in _KNOWN_VERSIONS:
        raise _InvalidFile(f"its version is {version}, and {_KNOWN_VERSIONS} are known")
    tensors = _number(file, "<Q")
    if tensors > _MAX_TENSORS:
        raise _InvalidFile(f"it claims {tensors:,} tensors")
    count = _number(file, "<Q")
    if count > _MAX_KEYS:
        raise _InvalidFile(f"it claims {count:,} keys")
    values = dict[str, str | int]()
    for _ in range(count):
        key = _text(file)
        value = _value(file, _number(file, "<I"))
        if value is not None:
            values[key] = value
    return tensors, values


def _value(file: BinaryIO, kind: int) -> str | int | None:
    """A text, an integer, or the largest of a short list; None for a skipped value."""
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        of, count = _number(file, "<I"), _number(file, "<Q")
        if of in _NUMBER_FORMATS and 0 < count <= _MAX_LAYERS:  # one number for each layer
            return max(_number(file, _NUMBER_FORMATS[of]) for _ in range(count))
        _skip(file, of, count)
        return None
    if kind in _NUMBER_FORMATS:
        return _number(file, _NUMBER_FORMATS[kind])
    _read(file, _NUMBER_SIZES.get(kind, 0) or _raise_unknown_type(kind))
    return None


def _skip(file: BinaryIO, kind: int, count: int) -> None:
    if kind == _TEXT:
        for _ in range(count):
            size = _number(file, "<Q")
            _read(file, size)
        return
    file.seek(count * (_NUMBER_SIZES.get(kind, 0) or _raise_unknown_type(kind)), 1)


def _raise_unknown_type(kind: int) -> int:
    raise _InvalidFile(f"it has a value of type {kind}, which is not known")


def _number(file: BinaryIO, format_: str) -> int:
    return int(struct.unpack(format_, _read(file, struct.calcsize(format_)))[0])


def _text(file: BinaryIO) -> str:
    return _read(file, _number(file, "<Q")).decode()


def _read(file: BinaryIO, size: int) -> bytes:
    if size > _MAX_TEXT_BYTES:
        raise _InvalidFile(f"it claims a text of {size:,} bytes")
    content = file.read(size)
    if len(content) < size:
        raise _InvalidFile("its header is cut off")
    return content
