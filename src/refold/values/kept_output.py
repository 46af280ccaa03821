"""Output that arrives in pieces: its beginning and end are kept, the middle is counted."""

from collections import deque

KEPT_AT_EACH_END = 8 * 1024 * 1024  # bytes


class Printed:
    def __init__(self, each_end: int = KEPT_AT_EACH_END) -> None:
        self._each_end = each_end
        self._start = bytearray()
        self._end = deque[bytes]()
        self._in_end = 0
        self.dropped = 0

    @property
    def start(self) -> bytes:
        return bytes(self._start)

    @property
    def end(self) -> bytes:
        return b"".join(self._end)

    def add(self, piece: bytes) -> None:
        if room := self._each_end - len(self._start):
            self._start += piece[:room]
            piece = piece[room:]
        if piece:
            self._end.append(piece)
            self._in_end += len(piece)
            while self._in_end > self._each_end:
                self._drop(self._in_end - self._each_end)

    def _drop(self, many: int) -> None:
        oldest = self._end.popleft()
        if len(oldest) > many:
            self._end.appendleft(oldest[many:])
        gone = min(many, len(oldest))
        self._in_end -= gone
        self.dropped += gone
