"""Reads a file that the user named on the command line, whole, up to a size."""

import errno
from pathlib import Path

from refold.safe_open import read_regular


def read_whole(file: Path, max_bytes: int) -> bytes:
    """The content of `file`, links followed. Raises `OSError` with the reason."""
    content, size = read_regular(file, max_bytes)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes >> 20} MiB")
    return content
