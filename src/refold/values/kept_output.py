"""Output that arrives in pieces: its beginning and end are kept, the middle is counted.

One thread may add to it while another reads.
"""

from collections import deque
from threading import Lock

MAX_END_BYTES = 8 * 1024 * 1024


class Printed:
    def __init__(self, each_end: int = MAX_END_BYTES) -> None:
        self._each_end = each_end
        self._start = bytearray()
        self._end = deque[bytes]()
        self._in_end = 0
        self._lock = Lock()
        self.dropped = 0

    @property
    def start(self) -> bytes:
        return bytes(self._start)

    @property
    def end(self) -> bytes:
        return b"".join(self._end)

    def since(self, place: int) -> tuple[bytes, int, bytes, int]:
        """The output after the first `place` bytes, and the number of bytes now.

        It is in two pieces, with the number of bytes between them that were not kept.
        """
        with self._lock:
            first, begins = len(self._start), len(self._start) + self.dropped
            start, end = bytes(self._start[place:]), b"".join(self._end)
            lost = max(0, begins - max(place, first))
            return start, lost, end[max(0, place - begins) :], begins + self._in_end

    def clear(self) -> None:
        """Drop all output."""
        with self._lock:
            self._start.clear()
            self._end.clear()
            self._in_end = self.dropped = 0

    def keep(self, each_end: int) -> None:
        """Limit each end to this number of bytes, also for the output so far."""
        with self._lock:
            self._each_end, middle = each_end, bytes(self._start[each_end:])
            del self._start[each_end:]
            if self.dropped:
                self.dropped += len(middle)
            elif middle:
                self._end.appendleft(middle)
                self._in_end += len(middle)
            self._trim()

    def skip(self, count: int) -> None:
        """Count bytes that were printed and not kept. The end begins after them."""
        with self._lock:
            self.dropped += count + self._in_end
            self._end.clear()
            self._in_end = 0

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        if space := self._each_end - len(self._start):
            self._start += piece[:space]
            piece = piece[space:]
        if piece:
            self._end.append(piece)
            self._in_end += len(piece)
            self._trim()

    def _trim(self) -> None:
        while self._in_end > self._each_end:
            self._drop(self._in_end - self._each_end)

    def _drop(self, count: int) -> None:
        oldest = self._end.popleft()
        if len(oldest) > count:
            self._end.appendleft(oldest[count:])
        gone = min(count, len(oldest))
        self._in_end -= gone
        self.dropped += gone
