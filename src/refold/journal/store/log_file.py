"""The file of lines, opened and locked by its only writer.

* A write that could not be completed is truncated. If even that fails, the next
  write does it first.
* A failed sync is never just repeated: the system may have dropped what it could
  not write, and would report success the second time. Lines that may not be on the
  disk stay in memory until they are, and `write_anew` writes them again.

`journal_writer` decides who may open it, `writer_lock` has the lock, and `reader` reads
without the lock.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from refold.errors import Conflict, JournalError
from refold.journal.store.disk import Disk
from refold.journal.store.writer_lock import lock, unlock

FILE_NAME = "events.jsonl"
VIEWS_FILE_NAME = "views"  # beside it, the cache that `view_cache` keeps
VIEWS_KEY_FILE = ".views.key"  # in the directory of all sessions
_TURN_OVER, _TURN_BEGUN = b'"kind":"TurnEnded"', b'"kind":"TurnStarted"'
MAX_UNSYNCED_BYTES = 16_000_000  # in memory; more are synced before the next write


class LogFile:
    """`write` and `write_anew` run in one thread at a time; `sync` in any, in parallel."""

    def __init__(self, path: Path, disk: Disk, *, new: bool = False) -> None:
        """Open and lock. Raises `Held` while another has the lock."""
        self._path, self._name, self._disk = path, str(path), disk
        self._file = disk.open(path, new=new)
        try:
            lock(self._file, path)
        except BaseException:
            disk.close(self._file)
            raise
        self._identity = _identity(os.fstat(self._file))
        self.size = self.count = 0  # as the last good write left the file
        self._torn = False  # something may stand after `size`
        self._syncing = threading.Lock()  # an error is reported to one sync only
        self._guard = threading.Lock()  # of the fields below
        self.kept = 0  # bytes that would survive a power failure
        self._unkept = list[bytes]()  # the bytes after those
        self._names = list[Path]()  # directories whose new names are not kept
        self._doubtful = False  # a sync failed

    @property
    def is_all_kept(self) -> bool:
        return not (self._unkept or self._names or self._doubtful)

    @property
    def is_quick(self) -> bool:
        """Whether the next `write` neither syncs nor repairs anything."""
        return not self._torn and self.size - self.kept <= MAX_UNSYNCED_BYTES

    def is_in_place(self) -> bool:
        """Whether this is still the file that others find under its name."""
        try:
            return _identity(os.lstat(self._name)) == self._identity
        except FileNotFoundError:
            return False

    def adopt(self, kept_bytes: int, names: Sequence[Path] = ()) -> bytes:
        """Take over the file: cut off a partial line or a hole at its end, and keep the
        rest.

        `kept_bytes` are known to be safe; what follows is written again, because an
        earlier writer may have failed to sync it. Returns what was cut off.
        """
        data = self._path.read_bytes()
        end = end_of_lines(data, kept_bytes)
        if end < len(data):
            self._disk.truncate(self._file, end)
        self.size, self.count, self._torn = end, data.count(b"\n", 0, end), False
        self.kept, self._names = min(kept_bytes, end), list(names)
        self._unkept = [data[self.kept : end]] if self.kept < end else []
        self._doubtful = bool(self._unkept)
        self.write_anew()
        return data[end:]

    def settle(self) -> bytes:
        """Restore the file as this writer left it. Returns a partial line of another process."""
        if self._torn:
            self._undo_write()
        self.write_anew()
        if os.fstat(self._file).st_size == self.size:
            return b""
        return self.adopt(self.kept)

    def write(self, lines: Sequence[bytes]) -> None:
        if self._doubtful:
            raise JournalError(_sync_error_text(self._path))
        size = os.fstat(self._file).st_size
        if self._torn:
            self._undo_write()
        elif size != self.size:
            raise Conflict(
                f"{self._path} is {size} bytes long, but its writer left it at "
                f"{self.size}: something else has changed it"
            )
        if self.size - self.kept > MAX_UNSYNCED_BYTES:
            self.sync()
        self._write(b"".join([line + b"\n" for line in lines]))
        self.count += len(lines)

    def sync(self) -> None:
        """Keep everything written so far. If it fails, the file is in doubt."""
        with self._syncing:
            with self._guard:
                if self.is_all_kept:
                    return
                if self._doubtful or self._file < 0:
                    raise JournalError(_sync_error_text(self._path))
                file = os.dup(self._file)  # so that it can be closed meanwhile
                pieces, names = list(self._unkept), list(self._names)
            try:
                self._sync_with_directories(file, names)
            except OSError:
                self._doubtful = True
                raise
            finally:
                os.close(file)
            with self._guard:
                self.kept += sum(map(len, pieces))
                del self._unkept[: len(pieces)], self._names[: len(names)]

    def write_anew(self) -> None:
        """If the file is in doubt, write what was not kept again, and sync it."""
        with self._syncing:
            if self._doubtful:
                self._disk.write(self._file, b"".join(self._unkept), self.kept)
                self._sync_with_directories(self._file, self._names)
                self.kept, self._unkept, self._names = self.size, [], []
                self._doubtful = False

    def close(self) -> None:
        with self._guard:
            unlock(self._file)  # a sync may hold a copy of it
            self._disk.close(self._file)
            self._file = -1

    def _write(self, piece: bytes) -> None:
        self._torn = True
        try:
            self._disk.write(self._file, piece, self.size)
        except BaseException:
            with suppress(OSError):  # the first error is raised; the next write retries
                self._undo_write()
            raise
        self._torn = False
        with self._guard:
            self._unkept.append(piece)
            self.size += len(piece)

    def _undo_write(self) -> None:
        self._disk.truncate(self._file, self.size)
        self._torn = False

    def _sync_with_directories(self, file: int, names: Sequence[Path]) -> None:
        self._disk.sync(file)
        for directory in names:
            with suppress(PermissionError):  # in a directory that we cannot read
                self._disk.sync_directory(directory)


def end_of_lines(data: bytes, kept_bytes: int) -> int:
    """The end of the lines that can be continued: before a partial line or a hole.

    After a power failure any block that was not synced may be missing, also in the middle:
    it reads as zeros, which no line contains. Up to `kept_bytes` everything was synced, so a
    hole there is damage that `codec` reports. `kept_bytes` may be out of date, so a hole is
    damage, too, if a whole turn and the start of another follow: a turn's end is synced.
    """
    end = data.rfind(b"\n") + 1
    hole = data.find(b"\0", 0, end)
    if hole < kept_bytes:
        return end
    over = data.find(_TURN_OVER, hole)
    if over >= 0 and data.find(_TURN_BEGUN, over) >= 0:
        return end
    return data.rfind(b"\n", 0, hole) + 1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _sync_error_text(path: Path) -> str:
    return f"{path} could not be synced to the disk: open the session again"
