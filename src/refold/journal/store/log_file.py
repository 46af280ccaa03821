"""The file of lines, opened and locked by its only writer.

* What an incomplete write left is cut off. If that fails, too, the next write does it first.
* A failed sync is never just repeated: the system may have dropped what it could not write, and
  would report success the second time. Lines that may not be on the disk stay in memory until
  they are synced, and `write_anew` writes them again.

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
VIEWS_FILE_NAME = "views"  # the file of `view_cache`, beside the log file
VIEWS_KEY_FILE = ".views.key"  # in the directory of all sessions
_TURN_OVER, _TURN_BEGUN = b'"kind":"TurnEnded"', b'"kind":"TurnStarted"'
# In memory. If there are more bytes, the next write syncs first.
MAX_UNSYNCED_BYTES = 16_000_000


class LogFile:
    """The log file of one journal, locked.

    Only one thread at a time may call `write` or `write_anew`; `sync` may run in parallel.
    """

    def __init__(self, path: Path, disk: Disk, *, new: bool = False) -> None:
        """Open and lock the file. Raises `Held` while another process has the lock."""
        self._path, self._name, self._disk = path, str(path), disk
        self._file = disk.open(path, new=new)
        try:
            lock(self._file, path)
        except BaseException:
            disk.close(self._file)
            raise
        self._identity = _identity(os.fstat(self._file))
        self.size = self.count = 0  # after the last complete write
        self._needs_undo = False  # a write failed, so the file may have bytes after `size`
        self._sync_lock = threading.Lock()  # so that only one sync gets an error
        self._field_lock = threading.Lock()  # protects the fields below
        self.kept = 0  # bytes that would survive a power failure
        self._unkept = list[bytes]()  # the written bytes that are not durable yet
        self._unsynced_directories = list[Path]()  # with new names that are not durable yet
        self._has_failed_sync = False  # a sync failed

    @property
    def is_all_kept(self) -> bool:
        return not (self._unkept or self._unsynced_directories or self._has_failed_sync)

    @property
    def is_quick(self) -> bool:
        """Whether the next `write` neither syncs nor repairs anything."""
        return not self._needs_undo and self.size - self.kept <= MAX_UNSYNCED_BYTES

    def is_in_place(self) -> bool:
        """Whether the file that others find under this name is still this one."""
        try:
            return _identity(os.lstat(self._name)) == self._identity
        except FileNotFoundError:
            return False

    def adopt(self, kept_bytes: int, directories: Sequence[Path] = ()) -> bytes:
        """Take over the file: cut off a partial line or a hole at its end.

        The first `kept_bytes` are known to be synced. The lines after them are written again,
        because an earlier writer may have failed to sync them. Returns what was cut off.
        """
        data = self._path.read_bytes()
        end = end_of_lines(data, kept_bytes)
        if end < len(data):
            self._disk.truncate(self._file, end)
        self.size = end
        self.count = data.count(b"\n", 0, end)
        self.kept = min(kept_bytes, end)
        unsynced_lines = data[self.kept : end]
        self._unkept = [unsynced_lines] if unsynced_lines else []
        self._unsynced_directories = list(directories)
        self._needs_undo = False
        self._has_failed_sync = bool(unsynced_lines)  # assumed of an earlier writer
        self.write_anew()
        return data[end:]

    def settle(self) -> bytes:
        """Undo a write that failed, and write again what may not be on the disk.

        If the file then has another length than this writer left, call `adopt`, and return what
        was cut off: a partial line of another process. Otherwise return b"".
        """
        if self._needs_undo:
            self._undo_write()
        self.write_anew()
        if os.fstat(self._file).st_size == self.size:
            return b""
        return self.adopt(self.kept)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, which are synced later. Raises `Conflict` if something else changed the
        file.
        """
        if self._has_failed_sync:
            raise JournalError(_sync_error_text(self._path))
        size = os.fstat(self._file).st_size
        if self._needs_undo:
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
        """Sync everything written. If that fails, the state of the file is unknown."""
        with self._sync_lock:
            with self._field_lock:
                if self.is_all_kept:
                    return
                if self._has_failed_sync or self._file < 0:
                    raise JournalError(_sync_error_text(self._path))
                # A duplicate, because the file may be closed meanwhile.
                file = os.dup(self._file)
                pieces = list(self._unkept)
                directories = list(self._unsynced_directories)
            try:
                self._sync_with_directories(file, directories)
            except OSError:
                self._has_failed_sync = True
                raise
            finally:
                os.close(file)
            with self._field_lock:
                self.kept += sum(map(len, pieces))
                # Other pieces may have been written during the sync.
                del self._unkept[: len(pieces)]
                del self._unsynced_directories[: len(directories)]

    def write_anew(self) -> None:
        """Write unsynced lines again, and sync, if the state of the file is unknown."""
        with self._sync_lock:
            if self._has_failed_sync:
                self._disk.write(self._file, b"".join(self._unkept), self.kept)
                self._sync_with_directories(self._file, self._unsynced_directories)
                self.kept = self.size
                self._unkept = []
                self._unsynced_directories = []
                self._has_failed_sync = False

    def close(self) -> None:
        """Release the lock, and close the file."""
        with self._field_lock:
            # A sync may have a duplicate of the descriptor, which would keep the lock.
            unlock(self._file)
            self._disk.close(self._file)
            self._file = -1

    def _write(self, piece: bytes) -> None:
        """Write a piece at the end of the valid lines. If that fails, cut it off again."""
        self._needs_undo = True
        try:
            self._disk.write(self._file, piece, self.size)
        except BaseException:
            with suppress(OSError):  # the first error is raised; the next write tries again
                self._undo_write()
            raise
        self._needs_undo = False
        with self._field_lock:
            self._unkept.append(piece)
            self.size += len(piece)

    def _undo_write(self) -> None:
        """Cut off what a failed write has left."""
        self._disk.truncate(self._file, self.size)
        self._needs_undo = False

    def _sync_with_directories(self, file: int, directories: Sequence[Path]) -> None:
        """Sync the file, and the directories in which its entry may be new."""
        self._disk.sync(file)
        for directory in directories:
            with suppress(PermissionError):  # we cannot read the directory
                self._disk.sync_directory(directory)


def end_of_lines(data: bytes, kept_bytes: int) -> int:
    """Return the end of the lines that can be continued: before a partial line or a hole.

    After a power failure, any block that was not synced may be missing, also in the middle.
    It then contains zeros, which no line does. Up to `kept_bytes` everything was synced, so
    a hole there is damage that `codec` reports. `kept_bytes` may be outdated. So a hole
    also counts as damage if a whole turn and the start of another follow, because the end
    of a turn is synced.
    """
    end = data.rfind(b"\n") + 1
    hole = data.find(b"\0", 0, end)
    if hole == -1 or hole < kept_bytes:
        return end
    end_of_turn = data.find(_TURN_OVER, hole)
    if end_of_turn >= 0 and data.find(_TURN_BEGUN, end_of_turn) >= 0:
        return end
    return data.rfind(b"\n", 0, hole) + 1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _sync_error_text(path: Path) -> str:
    return f"{path} could not be synced to the disk: open the session again"
