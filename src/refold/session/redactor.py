"""Replaces secrets by masks before anything is written. No other module does this.

Secrets are known values (provider keys), and values that look like a well-known kind of secret
(`secret_patterns`). Equal values get the same mask, so a redacted journal folds like any other.
`stream_redactor` handles text that arrives in pieces; `values.secret_mask` restores values in
files.
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
# The bytes of a value from which its tag is made. A stream holds back no more of a long
# secret, and the same secret must get the same tag there.
_TAGGED_BYTES = secret_patterns.STREAMED_BYTES
# Fields with fixed words of refold. A secret that equals one of these words, such as
# "assistant", must not change the meaning of an event.
_STRUCTURE_FIELDS = frozenset({
    "role", "stop", "outcome", "verdict", "kind", "when", "why", "mode", "id", "call_id",
    "provider_id", "media_type", "wire", "name", "sender", "client_key", "full_blob", "before", "after",
    # The name of a directory is not masked, or the session could not work in it.
    "directory", "roots", "trees", "tree",
})  # fmt: skip

# A part of a text, and its mask if the part is a secret.
_Piece: TypeAlias = tuple[bytes, bytes]


class Redactor:
    """Masks secrets. `read_key` returns the key of this installation.

    With the key, the mask of each secret has a tag of its own; without a key, all masks are
    equal. `read_key` is called when the first secret is masked.
    """

    def __init__(
        self, values: Iterable[str] = (), read_key: Callable[[], bytes] | None = None
    ) -> None:
        # Each known value as it is written, in JSON or in plain text, and the value itself.
        self._exact: tuple[tuple[bytes, bytes], ...] = ()
        self._read_key, self._key = read_key, b""
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """Mask these values, too, from now on.

        A provider key may be found in the middle of a session.
        """
        # Invalid Unicode cannot be part of an event.
        usable = {clean(v) for v in values if len(v) >= MIN_SECRET_CHARS}
        known = set(self._exact)
        for value in usable:
            known.add((codec.escape_json(value), value.encode()))  # as written in events
            known.add((value.encode(), value.encode()))  # as written in blobs
        # The longest come first, because one value may begin with another.
        self._exact = tuple(sorted(known, key=lambda pair: (-len(pair[0]), pair)))

    def mask_of(self, value: bytes) -> bytes:
        """Return the mask of this secret.

        The tag in the mask is a keyed hash, so only this installation can test which value it
        stands for.
        """
        if self._read_key is None:
            return MASK_BYTES
        self._key = self._key or self._read_key()
        if b"-----BEGIN" in value:
            # A private key has one tag, whatever precedes each of its lines.
            value = re.sub(secret_patterns.LINE_START, b"\n", value)
        tag = blake2b(value[:_TAGGED_BYTES], key=self._key, digest_size=_TAG_BYTES)
        return b"[secret:%b]" % tag.hexdigest().encode()

    def mask_event(self, value: T) -> T:
        """Return an event, or a part of one, with its secrets masked. Its structure does not
        change.
        """
        result: Any = value
        match result:
            case str():
                # Live news may end in the middle of a character.
                data = self.mask(result.encode("utf-8", "surrogatepass"))
                result = data.decode("utf-8", "surrogatepass")
            case Raw():
                result = self._mask_json(result)
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

    def _mask_json(self, raw: Raw) -> Raw:
        """Return the JSON with masked texts. JSON that cannot be read is masked as a whole."""
        try:
            return Raw(msgspec.json.encode(self.mask_event(msgspec.json.decode(raw))))
        except (msgspec.DecodeError, RecursionError):
            return Raw(msgspec.json.encode(MASK_BYTES.decode()))

    def mask(self, data: bytes) -> bytes:
        """Return `data`, which is JSON or plain text, with its secrets masked."""
        return secret_patterns.mask_secrets(self.mask_known(data), self.mask_of)

    def mask_known(self, data: bytes) -> bytes:
        """Return `data` with known values masked, but not values that merely have a secret's
        form.
        """
        for form, value in self._exact:
            if form in data:
                data = data.replace(form, self.mask_of(value))
        return data

    def pieces(self, text: str) -> Sequence[TextPiece]:
        """Split `text` at its secrets. Each secret comes with its mask.

        Masks and other text, joined, are the result of `mask`.
        """
        # Pairs of the original bytes and their mask, b"" for bytes that are not secret.
        pieces = [(text.encode("utf-8", "surrogatepass"), b"")] if text else []
        for form, value in self._exact:
            if any(form in data for data, _ in pieces):
                mask = self.mask_of(value)
                pieces = [new for piece in pieces for new in _split(piece, form, mask)]
        shown = _join_pieces(pieces)
        for shape in secret_patterns.shapes_in(shown):
            # The last match comes first, so that the offsets of the others stay valid.
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
        """Return the offset at which a known value may begin, with its end still missing.

        Return the length of `data` if there is none.
        """
        cut = min(
            (_find_beginning(form, data) for form, _ in self._exact), default=len(data)
        )
        # A complete value is not divided, even if another value may begin inside of it.
        while cut < len(data):
            value_start = self._find_across(data, cut)
            if value_start == -1:
                break
            cut = value_start
        return cut

    def _find_across(self, data: bytes, cut: int) -> int:
        """Return the start of the first known value that a cut at offset `cut` would divide; -1
        if it would divide none.
        """
        offsets = list[int]()
        for form, _ in self._exact:
            # A value that the cut divides begins before it and ends after it.
            earliest, end = max(0, cut - len(form) + 1), cut + len(form) - 1
            offset = data.find(form, earliest, end)
            if offset != -1:
                offsets.append(offset)
        return min(offsets, default=-1)


def _join_pieces(pieces: Sequence[_Piece]) -> bytes:
    """Join the pieces, with masks in place of secrets."""
    return b"".join(mask or data for data, mask in pieces)


def _split(piece: _Piece, value: bytes, mask: bytes) -> Iterator[_Piece]:
    """Split a piece so that each occurrence of `value` is a piece of its own."""
    data, own_mask = piece
    if own_mask or value not in data:
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
    """Split the pieces so that `start` to `end` is one piece, with this `mask`.

    These are offsets in the joined text, in which the masks stand for their pieces. The range
    must be in a piece that has no mask.
    """
    offset = 0  # of the piece in the joined text
    for data, own_mask in pieces:
        size = len(own_mask or data)
        has_range = offset <= start < offset + size
        if own_mask or not has_range:
            yield data, own_mask
        else:
            yield data[: start - offset], b""
            yield data[start - offset : end - offset], mask
            yield data[end - offset :], b""
        offset += size


def _find_beginning(value: bytes, data: bytes) -> int:
    """Return the offset of the longest beginning of `value` with which `data` ends; the
    length of `data` if it ends with none.
    """
    offset = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while offset != -1 and not value.startswith(data[offset:]):
        offset = data.find(value[:1], offset + 1)
    return len(data) if offset == -1 else offset
