"""Reads and writes the files of memory: private, replaced whole, one writer at a time."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from refold.errors import BadInput
from refold.place.private_files import open_lock, write

MAX_FILE_BYTES = 256 * 1024  # a user may write more than the prompt shows, up to this
_LOCK_SECONDS = 5.0  # for a lock, which is held only briefly
_RETRY_SECONDS = 0.02


def read_content(file: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """The content of a file of refold; "" if there is none. Raises `BadInput`."""
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
    """Replace the content, or change nothing. Raises `BadInput`.

    Only the user can read the file. If the user made it a link, it stays one.
    """
    try:
        write(file, text)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror or error}") from error


@contextmanager
def file_lock(lock: Path, timeout: float = _LOCK_SECONDS) -> Generator[None]:
    """Hold the lock. Raises `BadInput` if another process does not release it in time."""
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
