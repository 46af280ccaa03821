"""The output of a command while it arrives: its beginning and its end are kept.

Up to sixteen MiB are kept completely; of more, the middle is dropped and counted. Listeners
are called about twenty times a second at most, with a limited amount of text. The seam
decides how much of the output a model sees.
"""

import codecs
import os
import time
from collections.abc import Callable

from refold.values.kept_output import Printed

_AT_ONCE = 256 * 1024  # bytes of one read
_PIPE_BYTES = 1024 * 1024  # the size of our pipes, if the system permits it
_REPORT_SECONDS = 0.05  # between two calls of a listener
MAX_REPORT_BYTES = 32 * 1024  # passed to a listener in one call
_MAX_BINARY_BYTES = 1024 * 1024  # output up to here keeps all binary data
_BINARY_PIECE_BYTES = 64 * 1024  # of that, of which the ends are shown
_NO_TEXT = 0.1  # of the characters of a piece
_BINARY_EDGE_CHARS = 500  # kept at each end of a binary piece
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, of Linux


class ThrottledOutput:
    """Passes output on: the first at once, later output at intervals and in limited pieces."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self._on_output = on_output
        self._waiting, self._skipped = bytearray(), 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._next = 0.0

    @property
    def seconds_until_due(self) -> float | None:
        """Seconds until the waiting output is passed on; None if none waits."""
        return max(0.0, self._next - time.monotonic()) if self._waiting else None

    def add(self, piece: bytes) -> None:
        self._waiting += piece[-MAX_REPORT_BYTES:]
        over = max(0, len(self._waiting) - MAX_REPORT_BYTES)
        self._skipped += over + max(0, len(piece) - MAX_REPORT_BYTES)
        del self._waiting[:over]
        if self.seconds_until_due == 0:
            self.pass_on()

    def skip(self, count: int) -> None:
        """Note bytes that are left out before the next `add`. Waiting output is older, and
        left out, too.
        """
        if count:
            self._skipped += count + len(self._waiting)
            self._waiting.clear()

    def pass_on(self, *, last: bool = False) -> None:
        gap = ""
        if self._skipped:
            gap = self._decoder.decode(b"", True)
            gap += f"\n[{self._skipped:,} bytes were skipped: the output came too fast]\n"
            self._decoder.reset()
        text = gap + self._decoder.decode(bytes(self._waiting), last)
        self._waiting.clear()
        self._skipped = 0
        if text:
            self._next = time.monotonic() + _REPORT_SECONDS
            self._on_output(text)


class OutputPipe:
    """The output from a pipe of ours; `on_output` gets it as it arrives, `printed` keeps it.

    `close` reads what is left and passes on the last of it; the pipe stays open.
    """

    def __init__(
        self,
        reading: int,
        on_output: Callable[[str], None] | None,
        printed: Printed | None = None,
    ) -> None:
        os.set_blocking(reading, False)
        self.reading, self.open = reading, True
        self.printed = printed or Printed()
        self._told = ThrottledOutput(on_output) if on_output else None

    @property
    def seconds_until_due(self) -> float | None:
        """Seconds until the waiting output must be passed on; None if none waits."""
        return self._told.seconds_until_due if self._told else None

    def read_once(self) -> bool:
        """Read once, without waiting. Return whether there may be more."""
        piece = self._read()
        if piece is None:
            if self._told and self._told.seconds_until_due == 0:
                self._told.pass_on()
            return False
        self.open = bool(piece)
        self.printed.add(piece)
        if self._told and piece:
            self._told.add(piece)
        return self.open

    def close(self) -> None:
        # Read what is in the pipe, without waiting for more.
        for _ in range(2 * _PIPE_BYTES // _AT_ONCE):
            if not self.read_once():
                break
        if self._told:
            self._told.pass_on(last=True)

    def _read(self) -> bytes | None:
        try:
            return os.read(self.reading, _AT_ONCE)
        except BlockingIOError:
            return None


def to_text(data: bytes) -> tuple[str, bool]:
    """The output as text, and whether all of it is text.

    An invalid byte takes four bytes in memory. So the middle of each piece of long binary
    output is left out.
    """
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        if len(data) <= _MAX_BINARY_BYTES:
            return data.decode(errors="replace"), True
    decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), list[str]()
    whole = True
    for offset in range(0, len(data), _BINARY_PIECE_BYTES):
        piece = decoder.decode(
            data[offset : offset + _BINARY_PIECE_BYTES],
            offset + _BINARY_PIECE_BYTES >= len(data),
        )
        if piece.count("\ufffd") > _NO_TEXT * len(piece):
            left = max(0, len(piece) - 2 * _BINARY_EDGE_CHARS)
            gap = f"\n[{left:,} characters are left out: this is not text]\n"
            piece, whole = (
                piece[:_BINARY_EDGE_CHARS] + gap + piece[-_BINARY_EDGE_CHARS:],
                False,
            )
        pieces.append(piece)
    return "".join(pieces), whole


def open_pipe() -> tuple[int, int]:
    """A pipe: the end to read from and the end to write to."""
    ends = os.pipe()
    try:
        import fcntl

        fcntl.fcntl(ends[1], _SET_PIPE_SIZE, _PIPE_BYTES)
    except OSError:  # not Linux, or our quota is used up
        pass
    return ends
