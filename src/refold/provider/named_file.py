"""Reads a complete file that the user named on the command line, up to a maximum size."""

import errno
from pathlib import Path

from refold.safe_open import read_regular


def read_whole(file: Path, max_bytes: int) -> bytes:
    """Read a file, following links. Raises `OSError` if it is too large or unreadable."""
    content, size = read_regular(file, max_bytes)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes >> 20} MiB")
    return content
