"""The mask: the text that replaces a secret. Pure.

A model reads `KEY = "[secret:3f2a]"`; the four digits are the tag of this secret.
`session.redactor` decides what is secret and makes the mask; `place.file_secrets` restores a
secret in the file that contains it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

# The mask without a tag: in text for the user, and in journals of earlier versions.
SECRET_MASK = "[secret]"
_MASK_START = "[secret"
_MASK_START_BYTES = _MASK_START.encode()
MASK_PATTERN = r"\[secret(?::[0-9a-f]{4})?\]"
_TAGGED_PATTERN = r"\[secret:[0-9a-f]{4}\]"
_MASK_BYTES_PATTERN = MASK_PATTERN.encode()


class TextPiece(Struct, frozen=True):
    """A part of a text. If the part is a secret, `mask` replaces it; otherwise `mask` is ""."""

    text: str
    mask: str = ""


FindSecrets: TypeAlias = Callable[[str], Sequence[TextPiece]]


def has_mask(text: str | bytes) -> bool:
    """Whether the text contains the mask of a secret."""
    # Most texts contain no start of a mask, which is found faster than a pattern.
    if isinstance(text, bytes):
        return _MASK_START_BYTES in text and bool(re.search(_MASK_BYTES_PATTERN, text))
    return _MASK_START in text and bool(re.search(MASK_PATTERN, text))


def first_mask(text: str) -> str:
    """Return the first mask in the text, with or without a tag; "" if there is none."""
    match = re.search(MASK_PATTERN, text)
    return match[0] if match else ""


def first_tag(text: str) -> str:
    """Return the first mask in the text that has a tag; "" if there is none.

    A mask without a tag does not count, because a path may contain "[secret]" itself.
    """
    match = re.search(_TAGGED_PATTERN, text) if _MASK_START in text else None
    return match[0] if match else ""


def masks_in(value: object) -> Iterator[str]:
    """Yield the masks in all texts of a JSON value or a struct."""
    if isinstance(value, str):
        if _MASK_START in value:
            yield from re.findall(MASK_PATTERN, value)
    elif isinstance(value, dict):
        for key_and_value in cast("dict[object, object]", value).items():
            yield from masks_in(key_and_value)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from masks_in(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from masks_in(getattr(value, name))


def without_secrets(text: str) -> Sequence[TextPiece]:
    """Return the text as one piece, as if it contained no secret."""
    return (TextPiece(text),) if text else ()
