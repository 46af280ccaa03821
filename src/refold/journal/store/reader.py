"""Reads a journal's lines without its lock, even while its writer appends.

It returns complete lines only. `codec` checks that they form a chain.
"""

import os
from pathlib import Path


class Reader:
    """Reads lines and remembers where it stopped, so that the next read reads only new lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The number of lines read, and the byte at which they end.
        self._line = self._byte = 0

    def read(self, after: int, up_to: int | None = None) -> list[bytes]:
        """Return the complete lines after line `after`, in the first `up_to` bytes or in the
        whole file.
        """
        line, byte = self._line, self._byte
        if after < line:
            line, byte = 0, 0
        data = self._read_from(byte, up_to)
        if data is None:  # the file was truncated, or no line ends at this byte any more
            line, byte = 0, 0
            data = self._read_from(0, up_to) or b""
        *lines, incomplete_line = data.split(b"\n")
        self._line = line + len(lines)
        self._byte = byte + len(data) - len(incomplete_line)
        return lines[after - line :]

    def skip_to(self, line: int, byte: int) -> None:
        """Continue after line `line`, which ends at `byte`, as if everything before had
        been read.
        """
        self._line, self._byte = line, byte

    def _read_from(self, byte: int, up_to: int | None) -> bytes | None:
        """Return the bytes from `byte` on; None if the file no longer has a line that ends
        there.
        """
        try:
            with self._path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                end = size if up_to is None else min(size, up_to)
                # Without a line that ends at `byte`, the file was cut or replaced.
                if byte and (end < byte or os.pread(file.fileno(), 1, byte - 1) != b"\n"):
                    return None
                file.seek(byte)
                return _read_exactly(file.fileno(), end - byte)
        except FileNotFoundError:
            return None if byte else b""


def _read_exactly(file: int, count: int) -> bytes:
    """Read `count` bytes, or as many as the file has."""
    pieces = list[bytes]()
    while count and (piece := os.read(file, count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
