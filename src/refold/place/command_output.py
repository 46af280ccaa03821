"""Reads the output of a command, stores its beginning and end, and passes it to listeners.

Up to 16 MiB are stored completely; of longer output, the middle is dropped and its bytes are
counted. Listeners are called at most about twenty times a second, with a limited amount of
text. The seam decides how much of the output a model sees.
"""

import codecs
import os
import time
from collections.abc import Callable

from refold.values.kept_output import Printed

_READ_BYTES = 256 * 1024  # bytes of one read
_PIPE_BYTES = 1024 * 1024  # the size of our pipes, if the system permits it
_REPORT_SECONDS = 0.05  # between two calls of a listener
MAX_REPORT_BYTES = 32 * 1024  # passed to a listener in one call
_MAX_BINARY_BYTES = 1024 * 1024  # keep all binary data of shorter output
# longer binary output is divided into such pieces, of which both ends are shown
_BINARY_PIECE_BYTES = 64 * 1024
_BINARY_SHARE = 0.1  # a piece is binary if this share of its characters is not text
_BINARY_EDGE_CHARS = 500  # kept at each end of a binary piece
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, of Linux


class ThrottledOutput:
    """Passes output to `on_output`: the first piece at once, later ones at intervals.

    If more arrives in an interval than one call may pass, the oldest bytes are dropped.
    """

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self._on_output = on_output
        self._waiting, self._skipped = bytearray(), 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._next_time = 0.0

    @property
    def seconds_until_due(self) -> float | None:
        """Seconds until the waiting output must be passed on; None if no output waits."""
        return max(0.0, self._next_time - time.monotonic()) if self._waiting else None

    def add(self, piece: bytes) -> None:
        """Add output, and pass it on if that is due. If too much waits, drop the oldest."""
        kept_piece = piece[-MAX_REPORT_BYTES:]
        self._skipped += len(piece) - len(kept_piece)
        self._waiting += kept_piece
        excess = max(0, len(self._waiting) - MAX_REPORT_BYTES)
        self._skipped += excess
        del self._waiting[:excess]
        if self.seconds_until_due == 0:
            self.pass_on()

    def skip(self, count: int) -> None:
        """Count `count` bytes that were dropped before the next `add`.

        Output that is still waiting precedes them, so it is dropped, too.
        """
        if count:
            self._skipped += count + len(self._waiting)
            self._waiting.clear()

    def pass_on(self, *, last: bool = False) -> None:
        """Call `on_output` with the waiting output, and with a note about dropped bytes."""
        text = ""
        if self._skipped:
            text = self._decoder.decode(b"", final=True)  # a character that was cut off
            text += f"\n[{self._skipped:,} bytes were skipped: the output came too fast]\n"
            self._decoder.reset()
        text += self._decoder.decode(bytes(self._waiting), final=last)
        self._waiting.clear()
        self._skipped = 0
        if text:
            self._next_time = time.monotonic() + _REPORT_SECONDS
            self._on_output(text)


class OutputPipe:
    """Reads the output of a command from the descriptor `reading`.

    `on_output` is called with new output, and `printed` stores it. `close` reads what is still
    in the pipe, but does not close the descriptor.
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
        self._listener = ThrottledOutput(on_output) if on_output else None

    @property
    def seconds_until_due(self) -> float | None:
        """Seconds until the waiting output must be passed on; None if no output waits."""
        return self._listener.seconds_until_due if self._listener else None

    def read_once(self) -> bool:
        """Read once, without waiting. Return False if the pipe is empty or at its end."""
        piece = self._read()
        if piece is None:  # nothing to read now
            if self._listener and self._listener.seconds_until_due == 0:
                self._listener.pass_on()
            return False
        self.open = bool(piece)  # b"" is the end of the output
        self.printed.add(piece)
        if self._listener and piece:
            self._listener.add(piece)
        return self.open

    def close(self) -> None:
        """Read the rest of the output, and pass it on."""
        # Read what is in the pipe, without waiting for more. The number of reads is limited,
        # because a process that is left may write all the time.
        for _ in range(2 * _PIPE_BYTES // _READ_BYTES):
            if not self.read_once():
                break
        if self._listener:
            self._listener.pass_on(last=True)

    def _read(self) -> bytes | None:
        """Return the next bytes in the pipe: b"" at its end, None if it is empty now."""
        try:
            return os.read(self.reading, _READ_BYTES)
        except BlockingIOError:
            return None


def to_text(data: bytes) -> tuple[str, bool]:
    """Decode output. Return the text, and whether nothing was left out.

    In long output, the middle of each piece that is mostly binary is left out, because each
    invalid byte would take four bytes in memory.
    """
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        if len(data) <= _MAX_BINARY_BYTES:
            return data.decode(errors="replace"), True
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = list[str]()
    is_complete = True
    for start in range(0, len(data), _BINARY_PIECE_BYTES):
        end = start + _BINARY_PIECE_BYTES
        piece = decoder.decode(data[start:end], final=end >= len(data))
        if piece.count("\ufffd") > _BINARY_SHARE * len(piece):
            left_out = max(0, len(piece) - 2 * _BINARY_EDGE_CHARS)
            gap = f"\n[{left_out:,} characters are left out: this is not text]\n"
            piece = piece[:_BINARY_EDGE_CHARS] + gap + piece[-_BINARY_EDGE_CHARS:]
            is_complete = False
        pieces.append(piece)
    return "".join(pieces), is_complete


def open_pipe() -> tuple[int, int]:
    """Open a large pipe. Return the descriptors for reading and for writing."""
    reading, writing = os.pipe()
    try:
        import fcntl

        fcntl.fcntl(writing, _SET_PIPE_SIZE, _PIPE_BYTES)
    except OSError:  # not Linux, or our quota is used up
        pass
    return reading, writing
