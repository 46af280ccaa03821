"""Stores the beginning and the end of output that arrives in pieces, and only counts the
middle.

One thread may add output while another reads it.
"""

from collections import deque
from threading import Lock

MAX_END_BYTES = 8 * 1024 * 1024


class Printed:
    """The output of a program: its first and its last `each_end` bytes."""

    def __init__(self, each_end: int = MAX_END_BYTES) -> None:
        self._each_end = each_end
        self._start = bytearray()
        self._end = deque[bytes]()  # pieces, the oldest first
        self._end_length = 0  # of all pieces of the end together
        self._lock = Lock()
        self.dropped = 0  # number of bytes between the start and the end

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
            end_place = start_length + self.dropped  # where the stored end begins
            from_start = bytes(self._start[place:])
            lost = max(0, end_place - max(place, start_length))
            from_end = b"".join(self._end)[max(0, place - end_place) :]
            return from_start, lost, from_end, end_place + self._end_length

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
            self._each_end = each_end
            excess = bytes(self._start[each_end:])
            del self._start[each_end:]
            if self.dropped:  # what came after the excess is lost, so the end begins later
                self.dropped += len(excess)
            elif excess:
                self._end.appendleft(excess)
                self._end_length += len(excess)
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
        space_in_start = self._each_end - len(self._start)
        self._start += piece[:space_in_start]
        rest = piece[space_in_start:]
        if rest:
            self._end.append(rest)
            self._end_length += len(rest)
            self._trim()

    def _trim(self) -> None:
        while self._end_length > self._each_end:
            self._drop(self._end_length - self._each_end)

    def _drop(self, count: int) -> None:
        """Drop the oldest `count` bytes of the end, but not more than its first piece."""
        oldest = self._end.popleft()
        if len(oldest) > count:
            self._end.appendleft(oldest[count:])
        dropped_now = min(count, len(oldest))
        self._end_length -= dropped_now
        self.dropped += dropped_now
