"""Encodes each message for a wire only once, although every request repeats the conversation.

So a request at step 2,000 costs no more than one at step 10. Each wire keeps the encoded
messages, and the message objects from which they were made. If a conversation begins with the
same objects, only its new messages are encoded; after a rewind the removed messages are
dropped. Objects are compared by identity, not by sequence number, because many sessions share a
provider. The cache can be discarded at any time.

Some wires require speakers to alternate, so neighbouring messages of one speaker are merged: a
message is encoded as `EncodedPiece`s, and neighbours with the same `head` share it. The joined
bytes only ever grow at the end, which keeps a provider's prefix cache valid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from refold.provider.port import NO_PICTURES, Pictures
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage


class EncodedPiece(Struct, frozen=True):
    """A part of an encoded message. `head + body + tail` is a complete message of the API.

    Adjacent pieces with the same head are written with one head and one tail. The `body` of a
    piece without a head is a complete message.
    """

    body: bytes
    head: bytes = b""
    tail: bytes = b""


Encode = Callable[[Message, Pictures], Iterable[EncodedPiece]]


class EchoOptions(Struct, frozen=True):
    """Selects the parts of earlier responses that a wire sends again.

    Thinking is sent if it was stored under the name `own_wire`; "" means none. Calls of MCP
    servers by the provider are sent if the server is one of `mcp_servers`.
    """

    own_wire: str
    mcp_servers: tuple[str, ...] = ()


class _End(Struct, frozen=True):
    """The end of an encoded message: its offset, and the head and tail of its last piece."""

    message: StoredMessage | None
    offset: int
    head: bytes
    tail: bytes


class Encoded:
    """The encoded messages of a conversation. `join` encodes only new messages."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._joined = bytearray()  # without the last tail, which `join` adds
        self._ends: list[_End] = []

    def join(self, messages: Log[StoredMessage], pictures: Pictures = NO_PICTURES) -> bytes:
        """Return the encoded messages, separated by commas.

        `pictures` need to contain only the images of new messages.
        """
        ends = self._ends
        # Forget messages that were removed by a rewind.
        while ends and not begins_with(
            messages, len(ends), ends[0].message, ends[-1].message
        ):
            ends.pop()
        end = ends[-1] if ends else _End(message=None, offset=0, head=b"", tail=b"")
        del self._joined[end.offset :]
        for stored in messages[len(ends) :]:
            end = self._add(stored, pictures, end)
            ends.append(end)
        return b"".join((self._joined, end.tail))

    def end_of(self, number: int) -> int:
        """Return the offset in the last joined bytes after the first `number` messages."""
        return self._ends[number - 1].offset if number else 0

    def _add(self, stored: StoredMessage, pictures: Pictures, previous_end: _End) -> _End:
        """Append the encoded message, and return its end.

        A piece continues the piece before it if both have the same head.
        """
        head, tail = previous_end.head, previous_end.tail
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
    """Whether the first `count` messages exist, and begin with `first` and end with `last`.

    That suffices to recognize them, because a conversation grows only at its end, unless a
    compaction or a rewind replaces it.
    """
    return count <= len(messages) and messages[count - 1] is last and messages[0] is first


def body_with(fields: Mapping[str, Any], name: str, *encoded: bytes) -> bytes:
    """Encode a JSON object with `fields` and, at its end, an array called `name`.

    `encoded` are the encoded items of the array, joined with commas. They are copied only once,
    because a conversation may be long.
    """
    open_object = msgspec.json.encode(fields).removesuffix(b"}")
    comma = b"," if fields else b""
    pieces = [open_object, comma, b'"', name.encode(), b'":[']
    separator = b""
    for items in encoded:
        if items:
            pieces += (separator, items)
            separator = b","
    pieces.append(b"]}")
    return b"".join(pieces)


State = TypeVar("State")


class IncrementalFold(Generic[State]):
    """Computes a state from a growing conversation, one message at a time.

    `step` returns the next state for the state so far and a message. Only new messages are
    processed.
    """

    def __init__(self, start: State, step: Callable[[State, StoredMessage], State]) -> None:
        self._start, self._step = start, step
        self._state = start
        # the first and the last message that were folded
        self._known: tuple[StoredMessage, StoredMessage] | None = None
        self._length = 0

    def fold(self, conversation: Log[StoredMessage]) -> State:
        """Return the state for the conversation, which may have new messages at its end.

        If earlier messages were replaced since the last call, all messages are processed again.
        """
        if not self._known or not begins_with(conversation, self._length, *self._known):
            self._state, self._length = self._start, 0
        for stored in conversation[self._length :]:
            self._state = self._step(self._state, stored)
        self._length = len(conversation)
        self._known = (conversation[0], conversation[-1]) if conversation else None
        return self._state
