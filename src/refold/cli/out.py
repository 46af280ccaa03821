"""Standard output, written whole.

Python's own stdout loses the rest of a long text where it is not buffered
(PYTHONUNBUFFERED) and the pipe is full. Here every byte goes out, or `Gone` is
raised because nobody reads any more.
"""

import sys


class Gone(Exception):
    """Whoever read our output has left."""


def write(text: str) -> None:
    """Write and flush. Raises `Gone`."""
    left = memoryview(text.encode("utf-8", errors="replace"))
    out = sys.stdout.buffer
    try:
        while left:
            left = left[out.write(left) or 0 :]
        out.flush()
    except BrokenPipeError as error:
        raise Gone from error
