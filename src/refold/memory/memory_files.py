"""Reads and writes the files of memory. They are private, and one process writes at a time.

Content is replaced as a whole or not at all.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from refold.errors import BadInput
from refold.place.private_files import open_lock, write

MAX_FILE_BYTES = 256 * 1024  # a user may write more than the prompt shows, up to this size
_LOCK_SECONDS = 5.0  # for a lock, which is held only briefly
_RETRY_SECONDS = 0.02


def read_content(file: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the content of a file; "" if it is missing.

    Raises `BadInput` if the file cannot be read or is larger than `max_bytes`.
    """
    try:
        with file.open("rb") as opened:
            read = opened.read(max_bytes + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    if len(read) > max_bytes:
        raise BadInput(f"{file} is larger than {max_bytes // 1024} KiB: make it shorter")
    return read.decode("utf-8", errors="replace")


def replace(file: Path, text: str) -> None:
    """Replace the content of a file, completely or not at all.

    Only the user can read the file. If the path is a link, it stays a link. Raises `BadInput`
    if the file cannot be written.
    """
    try:
        write(file, text)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror or error}") from error


@contextmanager
def file_lock(lock: Path, timeout: float = _LOCK_SECONDS) -> Generator[None]:
    """Hold the lock file `lock` while the context is open.

    Raises `BadInput` if another process does not release it within `timeout` seconds.
    """
    try:
        opened = open_lock(lock)
    except OSError as error:
        raise BadInput(f"{lock} cannot be opened: {error.strerror}") from error
    try:
        _take_lock(opened, lock, time.monotonic() + timeout)
        yield
    finally:
        os.close(opened)


def _take_lock(descriptor: int, lock: Path, deadline: float) -> None:
    """Wait for the lock. `deadline` is in the time of the monotonic clock.

    Raises `BadInput` if another process still has the lock then.
    """
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise BadInput(
                    f"{lock} is held by another refold: try again when that has ended"
                ) from error
            time.sleep(_RETRY_SECONDS)
        else:
            return
