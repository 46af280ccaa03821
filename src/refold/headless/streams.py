"""Writes standard output completely, and notices to standard error.

Python's own stdout loses the rest of a long text if it is not buffered (PYTHONUNBUFFERED)
and the pipe is full. Here every byte is written, or `ReaderGone` is raised because the reader
closed the pipe. No other module of the command line writes to stderr, so no notice contains
control characters.
"""

import select
import sys
import time

import msgspec

from refold.errors import RefoldError
from refold.views.escape import exact, on_one_line, visible

_QUIET_SECONDS = 1.0  # before a wait for the catalogue is told


class ReaderGone(Exception):
    """Whoever read our output has left."""


def write(text: str) -> None:
    """Write and flush. Raises `ReaderGone`, or `RefoldError` if the disk is full."""
    write_bytes(text.encode("utf-8", errors="replace"))


def answer_text(text: str) -> str:
    """What `answer` writes of it."""
    return (visible(text) if sys.stdout.isatty() else text).rstrip() + "\n"


def report_end(outcome: object, reason: object) -> None:
    """Tell on stderr why there is no whole answer."""
    print_error(f"{outcome}: {on_one_line(str(reason))}")


def print_error(words: object) -> None:
    """An error or a notice on stderr, under our name."""
    print_note(f"refold: {words}")


def print_note(words: object) -> None:
    """A line on stderr that is neither: what was done, or that there is nothing.

    What no screen shows is written out, and no line but the first begins at its left: names
    of files and directories are in these, and their authors may be hostile.
    """
    first, *others = str(words).split("\n")
    indented = (line if line.startswith("  ") else f"  {line}" for line in others)
    print_lines("\n".join((first, *indented)))


class WaitNotice:
    """Says once, on stderr, that the catalogue indexes journals, if that takes long."""

    def __init__(self) -> None:
        self._began, self._said = time.monotonic(), False

    def __call__(self, count: int, of: int) -> None:
        if (
            not self._said
            and count < of
            and time.monotonic() - self._began > _QUIET_SECONDS
        ):
            self._said = True
            print_error(f"reading {of - count:,} sessions that are new to the catalogue…")


def explain_stdin(command: str, starter: str) -> None:
    """Where a terminal is at stdin: that a program is meant to write there."""
    if sys.stdin.isatty():
        print_note(
            f"{command} speaks JSON-RPC on stdin: {starter} starts it. Ctrl+C ends it."
        )


def print_lines(text: str) -> None:
    """Several lines on stderr, as they are but for what no screen shows."""
    sys.stderr.write(f"{exact(text)}\n")


def print_document(document: object) -> None:
    """A document for programs, on a line of its own."""
    write(msgspec.json.encode(document).decode() + "\n")


def write_bytes(data: bytes) -> None:
    """The same for bytes, exactly as they are."""
    left, stdout = memoryview(data), sys.stdout.buffer
    try:
        while True:
            try:
                while left:
                    left = left[stdout.write(left) or 0 :]
                stdout.flush()
                return
            except BlockingIOError as error:
                # Whoever shares it with us has made it one that does not wait.
                left = left[error.characters_written :]
                select.select((), (stdout,), ())
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        raise RefoldError(f"the output cannot be written: {error.strerror}") from error
