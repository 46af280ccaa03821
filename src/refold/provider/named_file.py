"""Reads a file that the user named on the command line, whole, up to a size."""

import errno
from pathlib import Path

from refold.safe_open import read_regular


def read_whole(file: Path, most: int) -> bytes:
    """The content of `file`, links followed. Raises `OSError` with the reason."""
    found, size = read_regular(file, most)
    if size > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
    return found
