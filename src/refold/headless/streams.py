"""Writes standard output completely, and notices to standard error.

Python's stdout loses the end of a long text if it is unbuffered (PYTHONUNBUFFERED) and the pipe
is full. The functions of this module write every byte, or raise `ReaderGone` if the reader has
closed the pipe. All notices of the command line are printed by this module, which escapes
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
    """Raised if the program that reads our stdout has closed the pipe."""


def write(text: str) -> None:
    """Write `text` to stdout and flush.

    Raises `ReaderGone`, or `RefoldError` if the text cannot be written.
    """
    write_bytes(text.encode("utf-8", errors="replace"))


def answer_text(text: str) -> str:
    """Return an answer as it is printed: on a terminal, with only visible characters."""
    return (visible(text) if sys.stdout.isatty() else text).rstrip() + "\n"


def report_end(outcome: object, reason: object) -> None:
    """Print on stderr the outcome and the reason why there is no complete answer."""
    print_error(f"{outcome}: {escape_to_one_line(str(reason))}")


def print_error(words: object) -> None:
    """Print an error or a notice on stderr, after "refold: "."""
    print_note(f"refold: {words}")


def print_note(words: object) -> None:
    """Print information about a result on stderr, without the prefix of errors.

    Invisible characters are escaped, and all lines after the first are indented, because a
    hostile author may have chosen the names of files in them.
    """
    first, *others = str(words).split("\n")
    indented = (line if line.startswith("  ") else f"  {line}" for line in others)
    print_lines("\n".join((first, *indented)))


class WaitNotice:
    """Reports once, on stderr, that the catalogue indexes new sessions, if this takes long."""

    def __init__(self) -> None:
        self._began, self._has_reported = time.monotonic(), False

    def __call__(self, count: int, total: int) -> None:
        """Report once how many sessions remain, if the first `count` of `total` took long."""
        is_slow = time.monotonic() - self._began > _QUIET_SECONDS
        if is_slow and count < total and not self._has_reported:
            self._has_reported = True
            print_error(
                f"reading {total - count:,} sessions that are new to the catalogue…"
            )


def explain_stdin(command: str, starter: str) -> None:
    """If stdin is a terminal, print that `starter`, a program, should start `command`."""
    if sys.stdin.isatty():
        print_note(
            f"{command} speaks JSON-RPC on stdin: {starter} starts it. Ctrl+C ends it."
        )


def print_lines(text: str) -> None:
    """Print several lines on stderr, with invisible characters escaped."""
    sys.stderr.write(f"{escape_hidden(text)}\n")


def print_document(document: object) -> None:
    """Print a document on stdout as one line of JSON."""
    write(msgspec.json.encode(document).decode() + "\n")


def write_bytes(data: bytes) -> None:
    """Write bytes unchanged to stdout, and flush. Raises the same errors as `write`."""
    unwritten = memoryview(data)
    stdout = sys.stdout.buffer
    try:
        while True:
            try:
                while unwritten:
                    # without a buffer, `write` returns None if nothing could be written
                    written_bytes = stdout.write(unwritten) or 0
                    unwritten = unwritten[written_bytes:]
                stdout.flush()
                return
            except BlockingIOError as error:
                # Another process that shares stdout has made it non-blocking.
                unwritten = unwritten[error.characters_written :]
                select.select((), (stdout,), ())
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        raise RefoldError(f"the output cannot be written: {error.strerror}") from error
