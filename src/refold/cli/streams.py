"""The streams that a process is given, as they may be: closed, or with nobody behind them.

Python leaves out a closed one. That its number is then given to the next file that is
opened, and what it costs to complain to nobody, is seen to here.
"""

import os
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def stand_in() -> None:
    """For streams that were closed from the start, of which Python has none: words that have
    ended, and an output that nobody reads."""
    _occupy()
    given = vars(sys)
    if given["stdin"] is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if given["stdout"] is None:
        reading, writing = os.pipe()
        os.close(reading)
        sys.stdout = os.fdopen(writing, "w", encoding="utf-8")


def never_failing(number: int) -> TextIO:
    """A stream for notices: a full disk or a reader who has left is none of our errors."""
    return TextIOWrapper(
        BufferedWriter(_Patient(number, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _occupy() -> None:
    """Let no file of ours get the number of a closed stream: programs would write there."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class _Patient(FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes
