"""The text that stands for a secret. Pure.

A model reads `KEY = "[secret:3f2a]"`. `session.redactor` decides what is secret and makes the
mask; `place.file_secrets` puts the value back into its own file.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

SECRET_MASK = (
    "[secret]"  # without a tag: what is printed, and in journals of earlier versions
)
_MASK_START, _MASK_START_BYTES = "[secret", b"[secret"
MASK_PATTERN = r"\[secret(?::[0-9a-f]{4})?\]"
_TAGGED_PATTERN = r"\[secret:[0-9a-f]{4}\]"
_MASK_BYTES_PATTERN = MASK_PATTERN.encode()


class TextPiece(Struct, frozen=True):
    """A part of a text. `mask` stands for it if it is a secret, otherwise it is ""."""

    text: str
    mask: str = ""


FindSecrets: TypeAlias = Callable[[str], Sequence[TextPiece]]


def has_mask(text: str | bytes) -> bool:
    if isinstance(text, bytes):
        return _MASK_START_BYTES in text and bool(re.search(_MASK_BYTES_PATTERN, text))
    return _MASK_START in text and bool(re.search(MASK_PATTERN, text))


def first_mask(text: str) -> str:
    """The first mask in the text, or ""."""
    match = re.search(MASK_PATTERN, text)
    return match[0] if match else ""


def first_tag(text: str) -> str:
    """The first mask with a tag, or "". A path or a pattern may have "[secret]" of its own."""
    match = re.search(_TAGGED_PATTERN, text) if _MASK_START in text else None
    return match[0] if match else ""


def masks_in(value: object) -> Iterator[str]:
    """The masks in any text of a JSON value."""
    if isinstance(value, str):
        yield from re.findall(MASK_PATTERN, value) if _MASK_START in value else ()
    elif isinstance(value, dict):
        for pair in cast("dict[object, object]", value).items():
            yield from masks_in(pair)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from masks_in(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from masks_in(getattr(value, name))


def without_secrets(text: str) -> Sequence[TextPiece]:
    """The pieces of a text without a search for secrets."""
    return (TextPiece(text),) if text else ()
