"""Replaces secrets before anything is written. No other module does this.

There are two kinds: known values (provider keys), and values that look like a well-known
kind of secret (`secret_patterns`). The same value always gets the same replacement, so a
redacted journal folds like any other. `stream_redactor` handles text that arrives in
pieces; `values.secret_mask` puts values back into their own file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.journal.events import codec
from refold.session import secret_patterns
from refold.values import secret_mask
from refold.values.secret_mask import TextPiece
from refold.values.text import MIN_SECRET_CHARS, clean

T = TypeVar("T")

MASK_BYTES = secret_mask.SECRET_MASK.encode()
_TAG_BYTES = 2
# The bytes of a value that its tag is made of: all that streamed text has of a long one.
_TAGGED_BYTES = secret_patterns.STREAMED_BYTES
# Fields that hold refold's own words. A secret that equals one of them ("assistant") must
# not change the meaning of an event.
_STRUCTURE_FIELDS = frozenset({
    "role", "stop", "outcome", "verdict", "kind", "when", "why", "mode", "id", "call_id",
    "provider_id", "media_type", "wire", "name", "sender", "client_key", "full_blob", "before", "after",
    # A directory's name stays as it is, or the session could not work there.
    "directory", "roots", "trees", "tree",
})  # fmt: skip

_Piece: TypeAlias = tuple[bytes, bytes]  # a part of a text, and its mask if it is a secret


class Redactor:
    """`read_key` gives the key of this installation, with which each value gets a tag of its own.
    It is called when the first secret is masked. Without one, all have the same mask.
    """

    def __init__(
        self, values: Iterable[str] = (), read_key: Callable[[], bytes] | None = None
    ) -> None:
        self._exact: tuple[tuple[bytes, bytes], ...] = ()  # as written, and the values
        self._read_key, self._key = read_key, b""
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """Redact these values, too, from now on: a key may be found in the middle of a
        session.
        """
        # Invalid Unicode cannot be in an event either.
        usable = {clean(v) for v in values if len(v) >= MIN_SECRET_CHARS}
        # As written in events and in blobs; longest first, because one may begin another.
        written = {
            (form, v.encode())
            for v in usable
            for form in (codec.escape_json(v), v.encode())
        }
        known = {*self._exact, *written}
        self._exact = tuple(sorted(known, key=lambda each: (-len(each[0]), each[0])))

    def mask_of(self, value: bytes) -> bytes:
        """The mask of this secret. Only with the key can its tag be matched to a value."""
        if self._read_key is None:
            return MASK_BYTES
        self._key = self._key or self._read_key()
        if b"-----BEGIN" in value:
            # It is the same key, however its lines begin.
            value = re.sub(secret_patterns.LINE_START, b"\n", value)
        tag = blake2b(value[:_TAGGED_BYTES], key=self._key, digest_size=_TAG_BYTES)
        return b"[secret:%b]" % tag.hexdigest().encode()

    def mask_event(self, value: T) -> T:
        """An event, or a part of one, with its secrets masked. Its structure stays."""
        result: Any = value
        match result:
            case str():
                # Live news may end in half a character.
                data = self.mask(result.encode("utf-8", "surrogatepass"))
                result = data.decode("utf-8", "surrogatepass")
            case Raw():
                result = self._json(result)
            case tuple():
                result = tuple(
                    self.mask_event(item) for item in cast("tuple[Any, ...]", result)
                )
            case list():
                result = [self.mask_event(item) for item in cast("list[Any]", result)]
            case dict():
                items = cast("dict[str, Any]", result).items()
                result = {
                    self.mask_event(key): self.mask_event(item) for key, item in items
                }
            case Struct():
                names = [n for n in result.__struct_fields__ if n not in _STRUCTURE_FIELDS]
                result = replace(
                    result, **{n: self.mask_event(getattr(result, n)) for n in names}
                )
            case _:
                pass
        return result

    def _json(self, raw: Raw) -> Raw:
        try:
            return Raw(msgspec.json.encode(self.mask_event(msgspec.json.decode(raw))))
        except (msgspec.DecodeError, RecursionError):
            return Raw(msgspec.json.encode(MASK_BYTES.decode()))

    def mask(self, data: bytes) -> bytes:
        """Return `data`, which is JSON or plain text, with its secrets masked."""
        return secret_patterns.mask_secrets(self.without_known(data), self.mask_of)

    def without_known(self, data: bytes) -> bytes:
        """Replace known values only, which is the first step of `mask`."""
        for form, value in self._exact:
            if form in data:
                data = data.replace(form, self.mask_of(value))
        return data

    def pieces(self, text: str) -> Sequence[TextPiece]:
        """`text` split at its secrets, each with its mask. Masks and rest, joined, are the
        result of `mask`.
        """
        pieces = [(text.encode("utf-8", "surrogatepass"), b"")] if text else []
        for form, value in self._exact:
            if any(form in data for data, _ in pieces):
                mask = self.mask_of(value)
                pieces = [new for piece in pieces for new in _split(piece, form, mask)]
        shown = _join_pieces(pieces)
        for shape in secret_patterns.shapes_in(shown):
            for match in reversed(list(shape.finditer(shown))):
                mask = self.mask_of(match[0])
                pieces = list(_split_at(pieces, match.start(), match.end(), mask))
            shown = _join_pieces(pieces)
        return [
            TextPiece(data.decode("utf-8", "surrogatepass"), mask.decode())
            for data, mask in pieces
            if data
        ]

    def start_of_known(self, data: bytes) -> int:
        """Return where a known value may begin at the end of `data`; its length if nowhere."""
        cut = min(
            (_find_beginning(form, data) for form, _ in self._exact), default=len(data)
        )
        # A complete value is not cut because another may begin inside it.
        while cut < len(data) and (across := self._find_across(data, cut)) != -1:
            cut = across
        return cut

    def _find_across(self, data: bytes, cut: int) -> int:
        offsets = (
            data.find(form, max(0, cut - len(form) + 1), cut + len(form) - 1)
            for form, _ in self._exact
        )
        return min((offset for offset in offsets if offset != -1), default=-1)


def _join_pieces(pieces: Sequence[_Piece]) -> bytes:
    return b"".join(mask or data for data, mask in pieces)


def _split(piece: _Piece, value: bytes, mask: bytes) -> Iterator[_Piece]:
    """A piece, split so that each `value` in it is a piece of its own."""
    data, masked = piece
    if masked or value not in data:
        yield piece
        return
    first, *others = data.split(value)
    yield first, b""
    for part in others:
        yield value, mask
        yield part, b""


def _split_at(
    pieces: Sequence[_Piece], start: int, end: int, mask: bytes
) -> Iterator[_Piece]:
    """The pieces, split so that `start` to `end` is one piece. It contains no mask."""
    index = 0
    for data, masked in pieces:
        size = len(masked or data)
        if masked or not index <= start < index + size:
            yield data, masked
        else:
            yield data[: start - index], b""
            yield data[start - index : end - index], mask
            yield data[end - index :], b""
        index += size


def _find_beginning(value: bytes, data: bytes) -> int:
    """The offset of the longest beginning of `value` that `data` ends with."""
    offset = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while offset != -1 and not value.startswith(data[offset:]):
        offset = data.find(value[:1], offset + 1)
    return len(data) if offset == -1 else offset
