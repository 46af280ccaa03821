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
from refold.views.escape import escape_hidden, escape_to_one_line, visible

_QUIET_SECONDS = 1.0  # before a wait for the catalogue is reported


class ReaderGone(Exception):
    """The reader of our output has closed the pipe."""


def write(text: str) -> None:
    """Write and flush. Raises `ReaderGone`, or `RefoldError` if the disk is full."""
    write_bytes(text.encode("utf-8", errors="replace"))


def answer_text(text: str) -> str:
    """The text as it is printed: visible characters only, on a terminal."""
    return (visible(text) if sys.stdout.isatty() else text).rstrip() + "\n"


def report_end(outcome: object, reason: object) -> None:
    """Report on stderr why there is no complete answer."""
    print_error(f"{outcome}: {escape_to_one_line(str(reason))}")


def print_error(words: object) -> None:
    """Print an error or a notice on stderr, under our name."""
    print_note(f"refold: {words}")


def print_note(words: object) -> None:
    """Print a line on stderr that is neither: what was done, or that there is nothing.
    Invisible characters are escaped, and all lines but the first are indented: names of
    files are in these, and their authors may be hostile.
    """
    first, *others = str(words).split("\n")
    indented = (line if line.startswith("  ") else f"  {line}" for line in others)
    print_lines("\n".join((first, *indented)))


class WaitNotice:
    """Reports once, on stderr, that the catalogue indexes journals, if that takes long."""

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
    """If stdin is a terminal, print that a program should write there."""
    if sys.stdin.isatty():
        print_note(
            f"{command} speaks JSON-RPC on stdin: {starter} starts it. Ctrl+C ends it."
        )


def print_lines(text: str) -> None:
    """Print several lines on stderr, with invisible characters escaped."""
    sys.stderr.write(f"{escape_hidden(text)}\n")


def print_document(document: object) -> None:
    """Print a document for programs, on its own line."""
    write(msgspec.json.encode(document).decode() + "\n")


def write_bytes(data: bytes) -> None:
    """Write bytes unchanged, and flush. Raises like `write`."""
    left, stdout = memoryview(data), sys.stdout.buffer
    try:
        while True:
            try:
                while left:
                    left = left[stdout.write(left) or 0 :]
                stdout.flush()
                return
            except BlockingIOError as error:
                # A process that shares stdout has made it non-blocking.
                left = left[error.characters_written :]
                select.select((), (stdout,), ())
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        raise RefoldError(f"the output cannot be written: {error.strerror}") from error
