"""Encodes entries as lines and decodes them, and chains each line to the one before.

A line is `{"h":…,"seq":…,"at":…,…,"kind":…,"v":…,"data":…}`. `h` hashes the `h` of the line
before and the rest of its own line, so the last line is covered, too. The hash is a checksum
that locates damage, not a protection against forgery.

`v` is the format of the events (`EVENT_FORMAT`). It was raised when kinds and fields were
renamed for the last time. A line of another format raises `WrongFormat`, because its kinds
would be unknown, and the fold would ignore them.

Decoding has two steps, envelope and data. Data of an unknown kind, or data that does not fit the
class of its kind, becomes `Unknown` and is kept unchanged. Only a broken chain is `Corrupt`. A line
is never encoded again. Stores decide where lines are kept and what an incomplete line means.

The long fields of a `SystemPromptSet` are packed in its line, because they are nearly the same
in every session, and would be most of the size of a short session. zlib gets a dictionary of
the texts that refold sends, from a file that never changes. So the line has only the
differences from these texts, and a journal can be read without other sessions. `python -m
scripts.prompt_texts N` writes the file of number N. A new file is useful when prompts have
changed much; the old ones are kept, because journals need them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Raw, Struct

from refold.errors import Corrupt, WrongFormat
from refold.journal.events.kinds import Entry, Event, SystemPromptSet, Unknown

EVENT_FORMAT = 2
_PACKED_FIELDS = ("system", "tools", "schema", "parts")
_NEWEST_TEXTS = 1  # the number of the file that new lines use
_MIN_PACKED_BYTES = 1_000  # shorter texts stay readable
_MAX_PACKED_BYTES = 1_000_000  # a forged line may unpack to much more
_TEXTS_ID = slice(2, 6)  # in the header of zlib: the Adler-32 of the known texts


class Head(Struct, frozen=True):
    """The number and the hash of the last line of a journal.

    If a copy of both is stored elsewhere, it reveals that the journal was cut.
    """

    seq: int = 0
    h: str = "0" * 16


class Line(Struct):
    """A line without its `h`: the envelope, and the data, not yet decoded."""

    seq: int
    at: float
    epoch: int
    turn: int
    by: str
    cause: int
    kind: str
    v: int
    data: Raw


KINDS_BY_NAME: dict[str, type[Event]] = {
    kind.__name__: kind for kind in get_args(Event) if kind is not Unknown
}


class _Decoders(dict[str, "msgspec.json.Decoder[Event]"]):
    """The decoder of each kind, made when the kind is first read: a new session reads
    none.
    """

    def __missing__(self, kind: str) -> "msgspec.json.Decoder[Event]":
        self[kind] = decoder = msgspec.json.Decoder(KINDS_BY_NAME[kind])
        return decoder


_EVENT_DECODERS = _Decoders()
_LINE_DECODER = msgspec.json.Decoder(Line)
# 16 hex digits come between these two parts.
_LINE_START, _HASH_END, _BODY_OFFSET = b'{"h":"', b'",', 24
_KIND_START = b'"kind":"'


def dump(event: Event) -> bytes:
    """Return the data of an event as JSON. Raises `UnicodeEncodeError` for a lone surrogate."""
    return bytes(event.data) if isinstance(event, Unknown) else msgspec.json.encode(event)


def load(kind: str, data: bytes | Raw) -> Event:
    """Return the event with this data; `Unknown` if the data does not fit a known kind."""
    try:
        unpacked = _unpack(bytes(data)) if kind == SystemPromptSet.__name__ else data
        return _EVENT_DECODERS[kind].decode(unpacked)
    # Includes the errors of msgspec, and of text that is not UTF-8.
    except (KeyError, ValueError):
        return Unknown(kind, Raw(bytes(data)))


def kind_of(event: Event) -> str:
    return event.kind if isinstance(event, Unknown) else type(event).__name__


def encode(entry: Entry, before: Head, data: bytes | None = None) -> tuple[bytes, Head]:
    """Return the line for `entry`, which follows `before`, and the new head.

    `data` is the event as encoded by `dump`, if the caller has it already.
    """
    if data is None:
        data = dump(entry.event)
    if isinstance(entry.event, SystemPromptSet):
        data = _pack(data)
    line = Line(
        entry.seq, entry.at, entry.epoch, entry.turn, entry.by, entry.cause,
        kind_of(entry.event), EVENT_FORMAT, Raw(data),
    )  # fmt: skip
    body = msgspec.json.encode(line)[1:]  # without "{", because the hash comes first
    h = _chain_hash(before.h, body)
    return _LINE_START + h.encode() + _HASH_END + body, Head(entry.seq, h)


def follow(lines: Iterable[bytes], head: Head) -> Iterator[tuple[Line, Head]]:
    """Yield each line, with its envelope decoded, and the head after it.

    `lines` follow `head`. Raises `Corrupt` at the first invalid line.
    """
    for line in lines:
        h = _chain_hash(head.h, line[_BODY_OFFSET:])
        if not line.startswith(line_prefix(h)):
            raise Corrupt(head.seq + 1, _describe_break(line, head))
        try:
            # The data is not copied: the line is in memory as long as the result is.
            decoded = _LINE_DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(head.seq + 1, "it is not a line of a journal") from error
        if decoded.v != EVENT_FORMAT:
            raise _wrong_format(decoded, head)
        head = Head(head.seq + 1, h)
        yield decoded, head


def valid_head(lines: Iterable[bytes], start: Head | None = None) -> Head:
    """Return the head after the last of `lines` that is valid. The lines follow `start`."""
    head = start or Head()
    with suppress(Corrupt):
        for _, after in follow(lines, head):
            head = after
    return head


def decode_unchecked(line: bytes) -> Event | None:
    """Decode a line whose chain is not checked; None if it is not a line of a journal."""
    try:
        decoded = _LINE_DECODER.decode(b"{" + line[_BODY_OFFSET:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return load(decoded.kind, decoded.data)


def line_prefix(h: str) -> bytes:
    """Return the first bytes of the line with the hash `h`."""
    return _LINE_START + h.encode() + _HASH_END


def possible_heads(line: bytes, head: Head) -> tuple[Head, Head]:
    """Return two heads that may follow an invalid line after `head`.

    The first has the number and hash that the line states, the second those that it should
    state.
    """
    hash_bytes = line[len(_LINE_START) : _BODY_OFFSET - len(_HASH_END)]
    stated_hash = hash_bytes.decode(errors="replace")
    body = line[_BODY_OFFSET:]
    try:
        stated_seq = _LINE_DECODER.decode(b"{" + body).seq
    except (msgspec.DecodeError, UnicodeDecodeError):
        stated_seq = head.seq + 1
    expected_head = Head(head.seq + 1, _chain_hash(head.h, body))
    return Head(stated_seq, stated_hash), expected_head


def decode(lines: Iterable[bytes], head: Head = Head()) -> Iterator[tuple[Entry, Head]]:  # noqa: B008 - frozen
    """Yield the entries of `lines`, which follow `head`, each with the head after it.

    Raises `Corrupt` at the first invalid line.
    """
    for line, after in follow(lines, head):
        event = load(line.kind, line.data)
        yield _entry(line, event), after


def decode_after(after: int, lines: Sequence[bytes]) -> list[Entry]:
    """Return the entries after event `after`.

    If `after` is 0, `lines` are the journal from its start. Otherwise the first of `lines` is
    that of event `after`. It is trusted, because the chain was checked up to it before.
    Raises `Corrupt`.
    """
    if not after:
        return [entry for entry, _ in decode(lines)]
    if not lines:
        return []
    head, _ = possible_heads(lines[0], Head())
    return [entry for entry, _ in decode(lines[1:], head)]


def decode_line(line: bytes) -> Entry:
    """Return the entry of a line whose chain was checked before. Raises `Corrupt`."""
    try:
        decoded = _LINE_DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(0, "it was changed after it was read") from error
    return _entry(decoded, load(decoded.kind, decoded.data))


def kind_name(line: bytes) -> bytes:
    """Return the kind that a line states, without decoding the line.

    The first `"kind":"` in a line is the field itself: in texts before it, quotes are escaped.
    """
    start = line.find(_KIND_START) + len(_KIND_START)
    return line[start : line.find(b'"', start)]


def _entry(line: Line, event: Event) -> Entry:
    return Entry(line.seq, event, line.at, line.epoch, line.turn, line.by, line.cause)


def _chain_hash(before: str, tail: bytes) -> str:
    return sha256(before.encode() + tail).hexdigest()[:16]


class _Packed(Struct):
    packed: bytes = b""


def _pack(data: bytes) -> bytes:
    """Return the data of a `SystemPromptSet` in packed form, for its line."""
    fields = msgspec.json.decode(data, type=dict[str, Raw])
    long_fields = {name: fields.pop(name) for name in _PACKED_FIELDS if name in fields}
    text = msgspec.json.encode(long_fields)
    if not _MIN_PACKED_BYTES <= len(text) <= _MAX_PACKED_BYTES:
        return data
    import zlib

    packer = zlib.compressobj(level=9, zdict=known_texts(_NEWEST_TEXTS))
    packed = packer.compress(text) + packer.flush()
    fields["packed"] = Raw(msgspec.json.encode(packed))
    return msgspec.json.encode(fields)


def _unpack(data: bytes) -> bytes:
    """Return the data that `_pack` packed. Raises `ValueError` if it cannot be unpacked."""
    packed = msgspec.json.decode(data, type=_Packed).packed
    if not packed:
        return data
    import zlib

    try:
        unpacker = zlib.decompressobj(zdict=_texts_with_checksum(packed[_TEXTS_ID]))
        text = unpacker.decompress(packed, _MAX_PACKED_BYTES)
    except zlib.error as error:
        raise ValueError(f"the packed text is damaged: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the packed text is cut off, or longer than it may be")
    fields = msgspec.json.decode(data, type=dict[str, Raw])
    del fields["packed"]
    long_fields = msgspec.json.decode(text, type=dict[str, Raw])
    return msgspec.json.encode(fields | long_fields)


@cache
def known_texts(number: int) -> bytes:
    """Return the dictionary for zlib from the file with this number, which never changes."""
    return Path(__file__).with_name(f"prompt_texts_{number}.txt").read_bytes()


def _texts_with_checksum(checksum: bytes) -> bytes:
    """Return the dictionary with which a text was packed. Raises `ValueError` if unknown."""
    import zlib

    for number in range(_NEWEST_TEXTS, 0, -1):
        texts = known_texts(number)
        if zlib.adler32(texts).to_bytes(4, "big") == checksum:
            return texts
    raise ValueError("it was packed with texts of a later version")


class _Start(Struct):
    """The fields that the first line of a session has in all formats."""

    id: str = ""
    refold: str = ""
    version: str = ""
    directory: str = ""


def _wrong_format(line: Line, head: Head) -> WrongFormat:
    """Return the error for a line of another format.

    The error for the first line of a journal also names the session.
    """
    start = _Start()
    if head.seq == 0:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            start = msgspec.json.decode(line.data, type=_Start)
    return WrongFormat(
        head.seq + 1, line.v, EVENT_FORMAT, directory=start.directory, session=start.id,
        version=start.version or start.refold,
    )  # fmt: skip


def _describe_break(line: bytes, head: Head) -> str:
    """Describe a break of the chain: a changed or a missing line, if that can be
    determined.
    """
    try:
        seq = _LINE_DECODER.decode(b"{" + line[_BODY_OFFSET:]).seq
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "it is no longer a valid line of a journal"
    if seq == head.seq + 2:
        return f"event {head.seq + 1} is missing"
    if seq > head.seq + 1:
        return f"events {head.seq + 1} to {seq - 1} are missing"
    if seq <= head.seq:
        return f"event {seq} is here a second time"
    return "it, or the line before it, was changed after it was written"


def escape_json(text: str) -> bytes:
    """Return `text` as it is written inside a JSON string."""
    return msgspec.json.encode(text)[1:-1]
