"""Appends to one journal: its log file, and the note of its only writer.

The lock is on `events.jsonl` itself, so it is released exactly when the writer ends,
however it ends. Nothing is created before the first append: opening a journal to read it
leaves no trace.

Everything here blocks on the disk; `file` calls it from the threads of `writer_threads`.
`log_file` writes and syncs the lines.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import time

from refold.errors import Fenced, Held, JournalError
from refold.journal.store import log_file, writer_lock
from refold.journal.store.disk import Disk, as_journal_errors, make_directories
from refold.journal.store.log_file import LogFile
from refold.journal.store.port import Fence, Lease, check, check_claim


class JournalWriter:
    """For one thread at a time, except for `keep`, which may run in parallel."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory, self._disk = directory, disk
        self._path = directory / log_file.FILE_NAME
        self._lines: LogFile | None = None  # None: not created yet, or not leased
        self._lock_file = writer_lock.LockFile(directory, disk)
        self._epoch, self._claim, self._leased = 0, 0, False
        self._fence = Fence()
        self._head = (0, "")

    @property
    def size(self) -> int | None:
        """The size of the valid lines. None if another process writes the journal."""
        book = self._lines
        return book.size if book else None

    @property
    def is_quick(self) -> bool:
        """Whether an append only writes to an open file and syncs nothing."""
        return self._lines is not None and self._lines.is_quick

    @property
    def is_all_kept(self) -> bool:
        book = self._lines
        return book is None or book.is_all_kept

    def read_claim(self) -> int:
        with as_journal_errors("read", self._path):
            return writer_lock.read(self._directory).writer.claim

    def lease(self, claim: int = 0) -> Lease:
        with self._fence, as_journal_errors("open", self._path):
            if self._lines and not self._lines.is_in_place():
                self._close()
            note = writer_lock.read(self._directory)
            if self._lines:
                self._check_no_successor(note)
                check_claim(claim, note.writer.claim)
                return self._become_writer(self._lines.settle(), note, claim)
            try:
                return self._lock_and_repair(note, claim)
            except BaseException:
                self._close()
                raise

    def release(self) -> None:
        try:
            with as_journal_errors("keep", self._path):
                if self._lines and self._lines.is_in_place() and not self._fence:
                    self._lines.settle()
                    self._lines.sync()

                    with suppress(OSError):
                        given_back = writer_lock.Writer(self._epoch, claim=self._claim)
                        self._lock_file.sign(given_back, self._head, self._lines.size)
        finally:
            self._close()

    def append(
        self, new: Sequence[bytes], expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        if not self._leased and not self._fence:
            raise JournalError(
                f"this process does not hold the lock of {self._directory}: lease it"
            )
        with self._fence, as_journal_errors("write", self._path):
            check(epoch, self._epoch, expect, self._lines.count if self._lines else 0)
            if self._lines is None:
                self._lines = self._create_log()
                check(epoch, self._epoch, expect, self._lines.count)
            self._check_still_writer(self._lines)
            self._lines.write(new)
        self._head = head
        self._lock_file.remember(head, self._lines.kept)

    def keep(self) -> None:
        with as_journal_errors("keep", self._path):
            if book := self._lines:
                book.sync()

    def _lock_and_repair(self, note: writer_lock.LockNote, claim: int) -> Lease:
        """Lock the log file and repair its end, if it exists."""
        with suppress(FileNotFoundError):
            self._lines = self._open_log()
            note = writer_lock.read(self._directory)  # the last writer may have changed it
        check_claim(claim, note.writer.claim)
        self._head, cut = note.head, b""
        if self._lines:
            names = () if note.kept else self._directories_to_sync()
            cut = self._lines.adopt(note.kept, names)
        return self._become_writer(cut, note, claim)

    def _become_writer(
        self, cut_bytes: bytes, note: writer_lock.LockNote, claim: int
    ) -> Lease:
        """Become the writer, with a new number. An empty journal is created by the first append."""
        self._epoch = max(_highest_epoch(note, self._lines), self._epoch) + 1
        self._claim = claim or note.writer.claim
        if self._lines:
            by = writer_lock.current_writer(self._epoch, self._claim)
            self._lock_file.sign(by, self._head, self._lines.kept)
        self._leased = True
        return Lease(self._epoch, cut_bytes, self._head)

    def _create_log(self) -> LogFile:
        """Create the journal, unless another process was faster."""
        above = [
            directory.parent for directory in make_directories(self._directory, self._disk)
        ]
        try:
            book = LogFile(self._path, self._disk, new=True)
        except FileExistsError:
            book = self._open_log()
        try:
            note = writer_lock.read(self._directory)
            if note.writer.epoch >= self._epoch:
                raise Fenced(
                    f"{self._directory} was taken by {writer_lock.describe_holder(note.writer)}"
                )
            book.adopt(0, tuple(dict.fromkeys((*self._directories_to_sync(), *above))))
            by = writer_lock.current_writer(self._epoch, self._claim)
            self._lock_file.sign(by, self._head, 0)
        except BaseException:
            book.close()
            raise
        return book

    def _open_log(self) -> LogFile:
        try:
            book = LogFile(self._path, self._disk)
        except Held:
            raise Held(_held_message(self._directory)) from None
        if not book.is_in_place():
            book.close()
            raise Fenced(f"{self._path} was replaced just now: open the session again")
        return book

    def _check_still_writer(self, book: LogFile) -> None:
        if not book.is_in_place():
            raise Fenced(
                f"{self._path} was moved, deleted or replaced while it was written: "
                "open the session again"
            )
        if self._lock_file.is_in_place():
            return
        self._check_no_successor(writer_lock.read(self._directory))
        # Only the note was lost or damaged: the lock is ours, so we are the writer.
        by = writer_lock.current_writer(self._epoch, self._claim)
        self._lock_file.sign(by, self._head, book.kept)

    def _check_no_successor(self, note: writer_lock.LockNote) -> None:
        if note.writer.epoch > self._epoch:
            raise Fenced(
                f"writer {self._epoch} of {self._directory} lost the lock to writer "
                f"{note.writer.epoch}: {writer_lock.describe_holder(note.writer)}"
            )

    def _directories_to_sync(self) -> list[Path]:
        """The directories whose names lead to the journal, lowest first."""
        return [self._directory, *self._directory.parents[:2]]

    def _close(self) -> None:
        self._leased = False
        self._lock_file.close()
        if self._lines:
            self._lines.close()
        self._lines = None


def _highest_epoch(note: writer_lock.LockNote, book: LogFile | None) -> int:
    """A number higher than that of every earlier writer.

    Without a valid note, it is taken from the clock.
    """
    if note.state != "good" and book and book.count:
        return int(time())
    return note.writer.epoch


def _held_message(directory: Path) -> str:
    holder = writer_lock.describe_holder(writer_lock.read(directory).writer)
    return (
        f"session {directory.name} is being written by {holder}: join it with "
        f"`refold attach {directory.name}`, or end that one first"
    )
