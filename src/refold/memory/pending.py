"""Sessions of which notes are still to be made: one empty file each, and who has tried.

A session is put down when it begins, so that one whose process died is not lost, and
struck off when it has been read. What cannot be written here is left: nothing but some
notes depends on it.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.place.private_files import make_directories
from refold.safe_open import opened, unlinked

TRIES = 3
OLDEST = 30 * 24 * 3600.0  # seconds; what is older than that is let go


class Pending:
    """`project` is the directory of what is remembered of it."""

    def __init__(self, project: Path) -> None:
        self._folder = project / "pending"

    def put(self, session: str) -> None:
        with suppress(OSError):
            make_directories(self._folder)
            unlinked(self._folder)
            os.close(opened(self._folder / session, os.O_WRONLY | os.O_CREAT))

    def done(self, session: str) -> None:
        with suppress(OSError):
            (self._folder / session).unlink()

    def sessions(self) -> list[str]:
        """The last put down first."""
        try:
            with os.scandir(self._folder) as found:
                files = [(each.name, each.stat().st_mtime) for each in found]
        except OSError:
            return []
        young = time.time() - OLDEST
        for name, changed in files:
            if changed < young:
                self.done(name)
        return sorted((n for n, at in files if at >= young and n[:1] != "."), reverse=True)

    def try_(self, session: str) -> bool:
        """Note that it is tried once more. False if that was tried often enough.

        On a full disk nothing can be noted, and nothing is given up for it either.
        """
        tries = 0
        with (
            suppress(OSError),
            open(self._folder / session, "a", encoding="ascii", opener=opened) as file,
        ):
            tries = file.tell()
            file.write(".")
        if tries >= TRIES:
            self.done(session)
        return tries < TRIES

    @contextmanager
    def alone(self) -> Generator[bool]:
        """Whether nobody else works these off. Waits for nobody."""
        try:
            lock = opened(self._folder / ".lock", os.O_RDWR | os.O_CREAT)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            os.close(lock)
