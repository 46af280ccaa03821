"""Reads a model's name, size, context window and chat template from the header of a GGUF file.

The format is described in github.com/ggml-org/ggml, docs/gguf.md.
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
_MAX_TEXT_BYTES = 4_000_000  # the length of one text
_MAX_TENSORS = 100_000
_MAX_DIMENSIONS = 8
_MAX_LAYERS = 1_000
_VALUE_BYTES = 2  # for each number that the model keeps per token
# Matches a chat template with a statement that reads `tools`.
_SHOWS_TOOLS_PATTERN = re.compile(r"\{%[^%]*(?<![\w.])tools\b")
# The sizes of numbers by their types; type 8 is text, 9 a list.
_NUMBER_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_NUMBER_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
_TEXT, _LIST = 8, 9


class GgufHeader(Struct, frozen=True):
    """The description of a model in a GGUF file. An unknown number is 0.

    `context` is in tokens. `token_bytes` is the maximum memory for each token of a
    conversation; models that forget distant tokens need less.
    """

    name: str = ""
    architecture: str = ""
    context: int = 0
    has_template: bool = False
    shows_tools: bool = False  # the template has a format for tools
    parameters: int = 0
    token_bytes: int = 0


def read_header(path: Path) -> GgufHeader:
    """Read the header of a file. Raises `BadInput` if llama.cpp cannot load the file."""
    try:
        with path.open("rb") as file:
            tensor_count, values = _read_keys(file)
            parameters = sum(_read_weights(file) for _ in range(tensor_count))
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
        name=str(values.get("general.name", "")),
        architecture=architecture,
        context=max(0, numbers.get("context_length", 0)),
        has_template=bool(template),
        shows_tools=bool(_SHOWS_TOOLS_PATTERN.search(template)),
        parameters=parameters,
        token_bytes=_token_bytes(numbers),
    )


class _InvalidFile(Exception):
    """Raised with the reason why a file is not valid."""


def _token_bytes(numbers: Mapping[str, int]) -> int:
    """Return the bytes for the keys and values of one token in all layers, or 0 if unknown."""
    layers = numbers.get("block_count", 0)
    heads = numbers.get("attention.head_count", 0)
    width = numbers.get("embedding_length", 0) // heads if heads > 0 else 0
    keys = numbers.get("attention.key_length", width)
    values = numbers.get("attention.value_length", width)
    key_value_heads = numbers.get("attention.head_count_kv", heads)
    token_bytes = layers * key_value_heads * (keys + values) * _VALUE_BYTES
    return max(0, token_bytes)  # a damaged file may have negative numbers


def _read_weights(file: BinaryIO) -> int:
    """Read the description of the next tensor, and return the number of its weights."""
    _read_text(file)  # its name
    dimensions = _read_number(file, "<I")
    if dimensions > _MAX_DIMENSIONS:
        raise _InvalidFile(f"it claims a tensor of {dimensions:,} dimensions")
    weights = math.prod(_read_number(file, "<Q") for _ in range(dimensions))
    _read_number(file, "<I")  # the type of the weights
    _read_number(file, "<Q")  # their offset in the file
    return weights


def _read_keys(file: BinaryIO) -> tuple[int, dict[str, str | int]]:
    """Read the keys. Return the number of tensors, and the known keys with their values."""
    if file.read(4) != _MAGIC_BYTES:
        raise _InvalidFile("it does not begin with GGUF")
    version = _read_number(file, "<I")
    if version not in _KNOWN_VERSIONS:
        raise _InvalidFile(f"its version is {version}, and {_KNOWN_VERSIONS} are known")
    tensor_count = _read_number(file, "<Q")
    if tensor_count > _MAX_TENSORS:
        raise _InvalidFile(f"it claims {tensor_count:,} tensors")
    key_count = _read_number(file, "<Q")
    if key_count > _MAX_KEYS:
        raise _InvalidFile(f"it claims {key_count:,} keys")
    values = dict[str, str | int]()
    for _ in range(key_count):
        key = _read_text(file)
        value = _read_value(file, _read_number(file, "<I"))
        if value is not None:
            values[key] = value
    return tensor_count, values


def _read_value(file: BinaryIO, kind: int) -> str | int | None:
    """Read a value: a text, an integer, or for a short list of numbers the largest one.

    Skip any other value, and return None.
    """
    if kind == _TEXT:
        return _read_text(file)
    if kind == _LIST:
        item_kind = _read_number(file, "<I")
        count = _read_number(file, "<Q")
        # a list with one number for each layer
        if item_kind in _NUMBER_FORMATS and 0 < count <= _MAX_LAYERS:
            return max(_read_number(file, _NUMBER_FORMATS[item_kind]) for _ in range(count))
        _skip(file, item_kind, count)
        return None
    if kind in _NUMBER_FORMATS:
        return _read_number(file, _NUMBER_FORMATS[kind])
    _read_bytes(file, _number_size(kind))
    return None


def _skip(file: BinaryIO, kind: int, count: int) -> None:
    """Move past `count` values of type `kind`."""
    if kind == _TEXT:
        for _ in range(count):
            size = _read_number(file, "<Q")
            _read_bytes(file, size)
        return
    file.seek(count * _number_size(kind), 1)


def _number_size(kind: int) -> int:
    """Return the size in bytes of a number of this type. Raises `_InvalidFile`."""
    if kind not in _NUMBER_SIZES:
        raise _InvalidFile(f"it has a value of type {kind}, which is not known")
    return _NUMBER_SIZES[kind]


def _read_number(file: BinaryIO, format_: str) -> int:
    return int(struct.unpack(format_, _read_bytes(file, struct.calcsize(format_)))[0])


def _read_text(file: BinaryIO) -> str:
    return _read_bytes(file, _read_number(file, "<Q")).decode()


def _read_bytes(file: BinaryIO, size: int) -> bytes:
    """Read exactly `size` bytes. Raises `_InvalidFile` if they are missing or too many."""
    if size > _MAX_TEXT_BYTES:
        raise _InvalidFile(f"it claims a text of {size:,} bytes")
    content = file.read(size)
    if len(content) < size:
        raise _InvalidFile("its header is cut off")
    return content
