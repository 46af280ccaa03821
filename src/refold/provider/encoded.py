"""Messages encoded for a wire, once each.

A request at step 2,000 must cost what one at step 10 costs, so each wire keeps
one growing piece of what it sent, and which messages that was. A talk that
begins with the same one and has the same one there is the same up to there:
only what is new is encoded, and after a rewind only what was taken back is
dropped. The same means the very same object. A seq would not do: every session
has a message 7, and many sessions share a provider. Throw it away when you like.

Some wires want speakers to alternate: two messages of one speaker become one.
So a message is encoded in `EncodedPiece`s, and neighbours with the same `head` share
it. What stands between is only ever appended to, which keeps a provider's
prefix cache warm.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from refold.provider.port import NO_PICTURES, Pictures
from refold.values.log import Log
from refold.values.messages import Message, Spoken


class EncodedPiece(Struct, frozen=True):
    """`head + body + tail` stands alone; `body`s may share a `head` and a `tail`.

    A piece without a head is a whole message and shares nothing.
    """

    body: bytes
    head: bytes = b""
    tail: bytes = b""


Encode = Callable[[Message, Pictures], Iterable[EncodedPiece]]


class _End(Struct, frozen=True):
    """How it stood after a message: how far, and what is still open."""

    spoken: Spoken | None
    at: int
    head: bytes
    tail: bytes


class Encoded:
    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._joined = bytearray()  # the last tail is left off until it is asked for
        self._ends: list[_End] = []

    def join(self, messages: Log[Spoken], pictures: Pictures = NO_PICTURES) -> bytes:
        """All of `messages`, with commas between them.

        `pictures` are looked at for what is new: those of old messages stand there.
        """
        while self._ends and not self._still_true(messages):
            self._ends.pop()
        end = self._ends[-1] if self._ends else _End(None, 0, b"", b"")
        del self._joined[end.at :]
        for spoken in messages[len(self._ends) :]:
            end = self._add(spoken, pictures, end)
            self._ends.append(end)
        return bytes(self._joined) + end.tail

    def end_of(self, number: int) -> int:
        """Where the first `number` messages end in what was joined last."""
        return self._ends[number - 1].at if number else 0

    def _add(self, spoken: Spoken, pictures: Pictures, end: _End) -> _End:
        head, tail = end.head, end.tail
        for piece in self._encode(spoken.message, pictures):
            if piece.head and piece.head == head:
                self._joined += b"," + piece.body
            else:
                comma = b"," if self._joined else b""
                self._joined += tail + comma + piece.head + piece.body
            head, tail = piece.head, piece.tail
        return _End(spoken, len(self._joined), head, tail)

    def _still_true(self, messages: Log[Spoken]) -> bool:
        known = len(self._ends)
        return (
            known <= len(messages)
            and messages[known - 1] is self._ends[-1].spoken
            and messages[0] is self._ends[0].spoken
        )
