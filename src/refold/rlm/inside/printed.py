"""What a cell prints, bounded: the start and the end are kept, the middle is counted.

What comes in by `print` is heard at once; what programs and C code write to the
descriptors 1 and 2 is read from a pipe, and shown at the end.
"""

import io
import os
import select
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

_BETWEEN = 0.05  # seconds between two times that the host is told
_TOLD = 4_000  # characters that it is told at once
_AT_ONCE = 65536
_ENDS = 8  # times the end is kept before it is cut
_PIECES = 64  # more than a pipe holds


class Kept:
    """Text, of which no more than about `most` characters are kept."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        self._start, self._all = "", 0
        self._end, self._in_end = list[str](), 0

    def add(self, text: str) -> None:
        with self._lock:
            self._all += len(text)
            if room := self._half - len(self._start):
                self._start += text[:room]
                text = text[room:]
            if text:
                self._end.append(text[-self._half :])
                self._in_end += len(self._end[-1])
                if self._in_end > _ENDS * self._half:
                    self._cut()

    def text(self, most: int) -> str:
        """No more than `most` characters, and a line that says how many are missing."""
        half = max(1, min(self._half, most // 2))
        with self._lock:
            self._cut()
            whole = self._start + "".join(self._end)
        if self._all <= 2 * half:
            return whole
        gap = f"[{self._all - 2 * half:,} characters were left out here]"
        return f"{whole[:half]}\n{gap}\n{whole[-half:]}"

    def _cut(self) -> None:
        self._end = ["".join(self._end)[-self._half :]]
        self._in_end = len(self._end[0])


class Stream(io.TextIOBase):
    """What `sys.stdout` and `sys.stderr` are while a cell runs."""

    def __init__(self, kept: Kept, number: int, told: Callable[[str], None]) -> None:
        self._kept, self._number, self._told = kept, number, told
        self._waiting, self._next = list[str](), 0.0
        self.buffer = _Bytes(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - code may give anything
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._kept.add(text)
        self._waiting.append(text[-_TOLD:])
        if time.monotonic() >= self._next:
            self.pass_on()
        return len(text)

    def pass_on(self) -> None:
        said, self._waiting = "".join(self._waiting)[-_TOLD:], []
        self._next = time.monotonic() + _BETWEEN
        if said:
            self._told(said)

    def flush(self) -> None:
        if time.monotonic() >= self._next:
            self.pass_on()

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return False


class _Bytes(io.RawIOBase):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        said = bytes(data)
        self._stream.write(said.decode(errors="replace"))
        return len(said)


class Descriptors:
    """What is written to 1 and 2 by whoever does not know of `sys.stdout`."""

    def __init__(self, most: int) -> None:
        self._kept, self._lock = Kept(most), Lock()
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        for number in (1, 2):
            os.dup2(writing, number)
        os.close(writing)
        self._read = os.read
        Thread(target=self._drain, daemon=True).start()

    def text(self, most: int) -> str:
        """What came since this was asked last."""
        for _ in range(_PIECES):
            if not self._take():
                break
        found = self._kept.text(most)
        self._kept.clear()
        return found

    def _drain(self) -> None:
        ready = select.poll()
        ready.register(self._reading, select.POLLIN)
        while True:
            ready.poll()
            if not self._take():
                time.sleep(_BETWEEN)  # code may have closed it

    def _take(self) -> bool:
        with self._lock:
            try:
                piece = self._read(self._reading, _AT_ONCE)
            except OSError:
                return False
        self._kept.add(piece.decode(errors="replace"))
        return bool(piece)
