"""Stores the beginning and the end of output that arrives in pieces, and only counts the
middle.

One thread may add output while another reads it.
"""

from collections import deque
from threading import Lock

MAX_END_BYTES = 8 * 1024 * 1024


class Printed:
    def __init__(self, each_end: int = MAX_END_BYTES) -> None:
        self._each_end = each_end
        self._start = bytearray()
        self._end = deque[bytes]()
        self._end_length = 0
        self._lock = Lock()
        self.dropped = 0

    @property
    def start(self) -> bytes:
        return bytes(self._start)

    @property
    def end(self) -> bytes:
        return b"".join(self._end)

    def since(self, place: int) -> tuple[bytes, int, bytes, int]:
        """Return the output after the first `place` bytes, in two pieces.

        The four values are the first piece, the number of bytes that were dropped after it,
        the second piece, and the number of all bytes so far.
        """
        with self._lock:
            start_length = len(self._start)
            end_place = start_length + self.dropped
            start, end = bytes(self._start[place:]), b"".join(self._end)
            lost = max(0, end_place - max(place, start_length))
            return (
                start,
                lost,
                end[max(0, place - end_place) :],
                end_place + self._end_length,
            )

    def clear(self) -> None:
        """Drop all output."""
        with self._lock:
            self._start.clear()
            self._end.clear()
            self._end_length = self.dropped = 0

    def limit_ends(self, each_end: int) -> None:
        """Limit the beginning and the end to `each_end` bytes each, also for output already
        stored.
        """
        with self._lock:
            self._each_end, middle = each_end, bytes(self._start[each_end:])
            del self._start[each_end:]
            if self.dropped:
                self.dropped += len(middle)
            elif middle:
                self._end.appendleft(middle)
                self._end_length += len(middle)
            self._trim()

    def skip(self, count: int) -> None:
        """Count bytes that were printed but not passed to this object. The stored end begins
        after them.
        """
        with self._lock:
            self.dropped += count + self._end_length
            self._end.clear()
            self._end_length = 0

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        """Fill the start first, and then add to the end, which drops its oldest bytes."""
        if space := self._each_end - len(self._start):
            self._start += piece[:space]
            piece = piece[space:]
        if piece:
            self._end.append(piece)
            self._end_length += len(piece)
            self._trim()

    def _trim(self) -> None:
        while self._end_length > self._each_end:
            self._drop(self._end_length - self._each_end)

    def _drop(self, count: int) -> None:
        """Drop up to `count` of the oldest bytes of the end, from its first piece only."""
        oldest = self._end.popleft()
        if len(oldest) > count:
            self._end.appendleft(oldest[count:])
        gone = min(count, len(oldest))
        self._end_length -= gone
        self.dropped += gone
