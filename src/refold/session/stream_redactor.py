"""Masks secrets in live news, even if a secret arrives in pieces.

The end of a piece is held back while it could begin a secret. It is published with the next
piece, or when its source ends. So the published pieces, joined, are what `redactor` makes of
the whole text. This module stores only the text that is held back; the hub publishes the rest.
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

# A longer text that is held back is certainly a secret.
_SURE_SECRET_BYTES = secret_patterns.STREAMED_BYTES
# A longer text is not a private key: an RSA key of 16,384 bits takes 12,700 bytes.
_MAX_HELD_BYTES = 16_384
_TEXT, _THINKING = "text", "thinking"


class StreamRedactor:
    """Masks secrets in the live news of one session."""

    def __init__(self, masks: Redactor) -> None:
        self._masks = masks
        # Each open stream, and the function that makes news of its text.
        self._streams: dict[str, tuple[_Stream, Callable[[str], Live]]] = {}

    def redact(self, live: Live) -> Iterator[Live]:
        """Yield the news that can be published now, including text that was held back
        before.
        """
        match live:
            case TextCame(text):
                yield from self._end_streams(_THINKING)
                yield from self._add_piece(_TEXT, text, TextCame)
            case ThinkingCame(text):
                yield from self._end_streams(_TEXT)
                yield from self._add_piece(_THINKING, text, ThinkingCame)
            case Progress(call_id, text):
                yield from self._add_piece(
                    call_id, text, lambda piece: Progress(call_id, piece)
                )
            case CallComing():
                yield from self._end_streams(_THINKING, _TEXT)
                yield self._masks.mask_event(live)
            case _:  # the recorder of a child has masked the texts in its news
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
        """Yield all text that is still held back. Call it when no more news arrives."""
        yield from self._end_streams(*self._streams)

    def _add_piece(
        self, name: str, text: str, make_news: Callable[[str], Live]
    ) -> Iterator[Live]:
        """Add text to the stream `name`, and yield news of the text that can be published."""
        if name not in self._streams:
            self._streams[name] = _Stream(self._masks), make_news
        stream, _ = self._streams[name]
        if part := stream.add(text):
            yield make_news(part)

    def _end_streams(self, *names: str) -> Iterator[Live]:
        """End these streams, and yield the text that they held back."""
        for name in names:
            if name in self._streams:
                stream, make_news = self._streams.pop(name)
                if part := stream.end():
                    yield make_news(part)


class _Stream:
    """One streamed text. Known values are masked first, then likely secrets."""

    def __init__(self, masks: Redactor) -> None:
        self._masks = masks
        self._held_known = b""  # held back, because it may begin a known value
        self._held = b""  # held back, because it may begin a pattern of secrets
        self._before = b""  # the text published last, which shows whether a new word begins
        # Matches the letters that continue a masked secret.
        self._continuation: re.Pattern[bytes] | None = None

    def add(self, text: str) -> str:
        """Add a piece, and return the text that can be published."""
        # A piece may end in the middle of a character.
        data = self._held_known + text.encode("utf-8", "surrogatepass")
        cut = self._masks.start_of_known(data)
        if len(data) - cut > _MAX_HELD_BYTES:
            cut = len(data)  # too much to hold back
        self._held_known = data[cut:]
        without_known = self._masks.mask_known(data[:cut])
        return _text(self._mask_shapes(without_known))

    def end(self) -> str:
        """Return the text that was held back, masked."""
        held_known = self._masks.mask_known(self._held_known)
        ready = self._mask_shapes(held_known) if held_known else b""
        return _text(ready + self._mask(self._held))

    def _mask_shapes(self, new: bytes) -> bytes:
        """Return the text with likely secrets masked, and hold back its end if that could begin
        a secret.

        Text that continues a secret which is masked already is left out.
        """
        if self._continuation is not None:
            new = new[_match_length(self._continuation, new) :]
            if not new:
                return b""
            self._continuation = None
        data = self._held + new
        # A long private key is held back without searching all of it at each piece.
        is_long = _SURE_SECRET_BYTES < len(data) < _MAX_HELD_BYTES
        if is_long and secret_patterns.continues_pem(self._held, new):
            self._held = data
            return b""
        start = len(self._before)
        cut = secret_patterns.possible_secret_start(self._before + data, start) - start
        ready = self._mask(data[:cut])
        self._held = data[cut:]
        if len(self._held) > _SURE_SECRET_BYTES:
            ready += self._release_held()
        return ready

    def _release_held(self) -> bytes:
        """Return the text held back, masked, once it is too long or certainly a secret.

        Return b"" while it stays held back.
        """
        self._continuation = secret_patterns.continuation_pattern(self._held)
        if self._continuation is None and len(self._held) <= _MAX_HELD_BYTES:
            return b""
        released, self._held = self._held, b""
        return self._mask(released)

    def _mask(self, data: bytes) -> bytes:
        """Return `data` with likely secrets masked, judged with the text before it."""
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
