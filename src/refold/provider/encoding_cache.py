"""Encodes each message for a wire once, although every request repeats the conversation.

A request at step 2,000 must cost what one at step 10 costs. So each wire keeps the
encoded messages and which objects they came from. If a conversation starts with the same
objects, only new messages are encoded; after a rewind only the removed messages are
dropped. Objects are compared by identity: sequence numbers would not do, because many
sessions share a provider. Dropping the cache is always safe.

Some wires require speakers to alternate, so neighbouring messages of one speaker are
merged: a message is encoded in `EncodedPiece`s, and neighbours with the same `head`
share it. The joined bytes only ever grow at the end, which keeps a provider's prefix
cache valid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from refold.provider.port import NO_PICTURES, Pictures
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage


class EncodedPiece(Struct, frozen=True):
    """`head + body + tail` is a whole message; several `body`s may share a `head` and a
    `tail`.

    A piece without a head is a whole message and shares nothing.
    """

    body: bytes
    head: bytes = b""
    tail: bytes = b""


Encode = Callable[[Message, Pictures], Iterable[EncodedPiece]]


class EchoOptions(Struct, frozen=True):
    """Which parts of earlier answers a wire sends again.

    `own_wire`: the name under which the thinking to send was stored; "": none is sent.
    `mcp_servers`: the MCP servers that the provider connects to, by their names.
    """

    own_wire: str
    mcp_servers: tuple[str, ...] = ()


class _End(Struct, frozen=True):
    """The end of an encoded message: its offset, and the head and tail that are open."""

    spoken: StoredMessage | None
    offset: int
    head: bytes
    tail: bytes


class Encoded:
    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._joined = bytearray()  # without the last tail, which `join` adds
        self._ends: list[_End] = []

    def join(self, messages: Log[StoredMessage], pictures: Pictures = NO_PICTURES) -> bytes:
        """All of `messages`, with commas between them.

        `pictures` are needed for new messages only: old ones are encoded already.
        """
        ends = self._ends
        while ends and not begins_with(
            messages, len(ends), ends[0].spoken, ends[-1].spoken
        ):
            ends.pop()
        end = self._ends[-1] if self._ends else _End(None, 0, b"", b"")
        del self._joined[end.offset :]
        for stored in messages[len(self._ends) :]:
            end = self._add(stored, pictures, end)
            self._ends.append(end)
        return b"".join((self._joined, end.tail))

    def end_of(self, number: int) -> int:
        """Where the first `number` messages end in what was joined last."""
        return self._ends[number - 1].offset if number else 0

    def _add(self, stored: StoredMessage, pictures: Pictures, end: _End) -> _End:
        head, tail = end.head, end.tail
        for piece in self._encode(stored.message, pictures):
            if piece.head and piece.head == head:
                self._joined += b"," + piece.body
            else:
                comma = b"," if self._joined else b""
                self._joined += tail + comma + piece.head + piece.body
            head, tail = piece.head, piece.tail
        return _End(stored, len(self._joined), head, tail)


def begins_with(
    messages: Sequence[StoredMessage],
    count: int,
    first: StoredMessage | None,
    last: StoredMessage | None,
) -> bool:
    """Return True if the first `count` messages begin and end with these two.

    A conversation only grows at its end, unless a compaction or a rewind replaces it.
    """
    return count <= len(messages) and messages[count - 1] is last and messages[0] is first


def body_with(fields: Mapping[str, Any], name: str, *encoded: bytes) -> bytes:
    """A JSON object of `fields`, and last an array `name` of items that are already encoded.

    Each of `encoded` has one item or several, joined with commas. A long conversation is
    copied once here.
    """
    start = msgspec.json.encode(fields)[:-1] + (b',"' if fields else b'"')
    items = [piece for array in encoded if array for piece in (b",", array)][1:]
    return b"".join((start, name.encode(), b'":[', *items, b"]}"))


State = TypeVar("State")


class IncrementalFold(Generic[State]):
    """`step` computes the next state from one more message and the state so far."""

    def __init__(self, start: State, step: Callable[[State, StoredMessage], State]) -> None:
        self._start, self._step = start, step
        self._state = start
        # The first and the last that were seen.
        self._known: tuple[StoredMessage, StoredMessage] | None = None
        self._length = 0

    def fold(self, conversation: Log[StoredMessage]) -> State:
        if not self._known or not begins_with(conversation, self._length, *self._known):
            self._state, self._length = self._start, 0
        for stored in conversation[self._length :]:
            self._state = self._step(self._state, stored)
        self._length = len(conversation)
        self._known = (conversation[0], conversation[-1]) if conversation else None
        return self._state
