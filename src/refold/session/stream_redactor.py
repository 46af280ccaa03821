"""Removes secrets from live news, even if one arrives in pieces.

The end of a piece is held back while it could begin a secret. It is published with the next
piece, or when its source is done. So the published pieces, joined, are what `redactor`
makes of the whole text. This module holds only the text that waits; the hub publishes the
rest.
"""

import re
from collections.abc import Callable, Iterator

from refold.journal.events.kinds import (
    Ended,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Stopped,
    TurnEnded,
)
from refold.session import secret_patterns
from refold.session.redactor import Redactor
from refold.values.live import CallComing, Live, Progress, TextCame, ThinkingCame

# Bytes. Longer text is a secret for certain, or (the second) too long to end in a key:
# an RSA key of 16,384 bits takes 12,700.
_SURE, _MOST = secret_patterns.STREAMED_BYTES, 16_384
_TEXT, _THINKING = "text", "thinking"


class StreamRedactor:
    def __init__(self, masks: Redactor) -> None:
        self._masks = masks
        self._streams: dict[str, tuple[_Stream, Callable[[str], Live]]] = {}

    def redact(self, live: Live) -> Iterator[Live]:
        """The part that can be published now, with what was held back before."""
        match live:
            case TextCame(text):
                yield from self._end_streams(_THINKING)
                yield from self._piece(_TEXT, text, TextCame)
            case ThinkingCame(text):
                yield from self._end_streams(_TEXT)
                yield from self._piece(_THINKING, text, ThinkingCame)
            case Progress(call_id, text):
                yield from self._piece(call_id, text, lambda told: Progress(call_id, told))
            case CallComing():
                yield from self._end_streams(_THINKING, _TEXT)
                yield self._masks.mask_event(live)
            case _:  # of a child: its own record has cut it already
                yield self._masks.mask_event(live)

    def end_sources(self, event: Event) -> Iterator[Live]:
        """Yield the text held back for the sources that this event ends."""
        match event:
            case Ended(call_id=call_id):
                yield from self._end_streams(call_id)
            case ModelAsked() | ModelAnswered() | ModelFailed() | Stopped():
                yield from self._end_streams(_THINKING, _TEXT)
            case TurnEnded():
                yield from self.end_all()
            case _:
                pass

    def end_all(self) -> Iterator[Live]:
        """Yield all text that is held back: no more of it will come."""
        yield from self._end_streams(*self._streams)

    def _piece(self, name: str, text: str, live: Callable[[str], Live]) -> Iterator[Live]:
        if name not in self._streams:
            self._streams[name] = _Stream(self._masks), live
        if part := self._streams[name][0].add(text):
            yield live(part)

    def _end_streams(self, *names: str) -> Iterator[Live]:
        for name in names:
            if name in self._streams:
                stream, live = self._streams.pop(name)
                if part := stream.end():
                    yield live(part)


class _Stream:
    """One streamed text. First known values are masked, then likely secrets."""

    def __init__(self, masks: Redactor) -> None:
        self._masks = masks
        self._known = b""  # held back: it may begin a known value
        self._waits = b""  # held back: it may begin a secret shape
        self._before = b""  # published last: it shows whether a word begins
        self._hidden: re.Pattern[bytes] | None = None  # what continues a secret

    def add(self, text: str) -> str:
        # It may end in half a character.
        data = self._known + text.encode("utf-8", "surrogatepass")
        cut = self._masks.start_of_known(data)
        if len(data) - cut > _MOST:
            cut = len(data)
        self._known = data[cut:]
        return _text(self._mask_shapes(self._masks.without_known(data[:cut])))

    def end(self) -> str:
        known = self._masks.without_known(self._known)
        shown = self._mask_shapes(known) if known else b""
        return _text(shown + self._mask(self._waits))

    def _mask_shapes(self, new: bytes) -> bytes:
        if self._hidden is not None:
            new = new[_match_length(self._hidden, new) :]
            if not new:
                return b""
            self._hidden = None
        data = self._waits + new
        sure = _SURE < len(data) < _MOST
        if sure and secret_patterns.continues_pem(self._waits, new):
            self._waits = data
            return b""
        start = len(self._before)
        cut = secret_patterns.possible_secret_start(self._before + data, start) - start
        ready, self._waits = self._mask(data[:cut]), data[cut:]
        if len(self._waits) > _SURE:
            ready += self._shorten_waiting()
        return ready

    def _shorten_waiting(self) -> bytes:
        """Release the text held back, masked, once it is long or is already a secret."""
        waited, self._hidden = (
            self._waits,
            secret_patterns.continuation_pattern(self._waits),
        )
        if self._hidden is None and len(waited) <= _MOST:
            return b""
        self._waits = b""
        return self._mask(waited)

    def _mask(self, data: bytes) -> bytes:
        if not data:
            return b""
        start = len(self._before)
        result = secret_patterns.mask_secrets(
            self._before + data, self._masks.mask_of, start
        )
        self._before = result[-secret_patterns.SEEN_BEFORE :]
        return result[start:]


def _match_length(letters: re.Pattern[bytes], data: bytes) -> int:
    match = letters.match(data)
    return match.end() if match else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
