"""Appends to one journal: its log file, and the note of its only writer.

The lock is on `events.jsonl` itself, so it is released exactly when the writer ends,
however it ends. Nothing is created before the first append, so opening a journal to read it
leaves no trace.

Every method blocks on the disk; `file` calls it from the threads of `writer_threads`.
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
from refold.journal.store.port import Fence, Lease, check_append, check_claim


class JournalWriter:
    """The writer of one journal.

    One thread uses it at a time, but `keep` may run in parallel.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory, self._disk = directory, disk
        self._path = directory / log_file.FILE_NAME
        self._log: LogFile | None = None  # None: it was not created yet, or is not leased
        self._lock_file = writer_lock.LockFile(directory, disk)
        self._epoch, self._claim, self._leased = 0, 0, False
        self._fence = Fence()
        self._head = (0, "")

    @property
    def size(self) -> int | None:
        """The size of the valid lines; None unless this process has the log file open."""
        log = self._log
        return log.size if log else None

    @property
    def is_quick(self) -> bool:
        """Whether an append only writes to an open file and needs no sync."""
        return self._log is not None and self._log.is_quick

    @property
    def is_all_kept(self) -> bool:
        log = self._log
        return log is None or log.is_all_kept

    def read_claim(self) -> int:
        with as_journal_errors("read", self._path):
            return writer_lock.read(self._directory).writer.claim

    def lease(self, claim: int = 0) -> Lease:
        """Take the writer lock, as `Store.lease` does, and return what was repaired."""
        with self._fence, as_journal_errors("open", self._path):
            if self._log and not self._log.is_in_place():
                self._close()  # the journal was moved or deleted
            note = writer_lock.read(self._directory)
            if self._log:  # this process has the lock already
                self._check_no_successor(note)
                check_claim(claim, note.writer.claim)
                return self._become_writer(self._log.settle(), note, claim)
            try:
                return self._lock_and_repair(note, claim)
            except BaseException:
                self._close()
                raise

    def release(self) -> None:
        """Sync what is written, note that no process is the writer, and release the lock."""
        try:
            with as_journal_errors("keep", self._path):
                log = self._log
                if log and log.is_in_place() and not self._fence.is_closed:
                    log.settle()
                    log.sync()
                    no_process = writer_lock.Writer(self._epoch, claim=self._claim)
                    # Without this note, the next writer only has more to check.
                    with suppress(OSError):
                        self._lock_file.sign(no_process, self._head, log.size)
        finally:
            self._close()

    def append(
        self, new: Sequence[bytes], expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        """Append lines, and create the journal with the first ones. Raises as `Store.append`
        does.
        """
        if not self._leased and not self._fence.is_closed:  # a closed fence raises below
            raise JournalError(
                f"this process does not hold the lock of {self._directory}: lease it"
            )
        with self._fence, as_journal_errors("write", self._path):
            line_count = self._log.count if self._log else 0
            check_append(epoch, newest=self._epoch, expect=expect, count=line_count)
            if self._log is None:
                self._log = self._create_log()
                # Another process may have created it, with lines.
                line_count = self._log.count
                check_append(epoch, newest=self._epoch, expect=expect, count=line_count)
            self._check_still_writer(self._log)
            self._log.write(new)
        self._head = head
        self._lock_file.remember(head, self._log.kept)

    def keep(self) -> None:
        with as_journal_errors("keep", self._path):
            if log := self._log:
                log.sync()

    def _lock_and_repair(self, note: writer_lock.LockNote, claim: int) -> Lease:
        """Lock the log file, if it exists, repair its end, and become the writer."""
        with suppress(FileNotFoundError):
            self._log = self._open_log()
            # The last writer may have changed the note before it released the lock.
            note = writer_lock.read(self._directory)
        check_claim(claim, note.writer.claim)
        self._head = note.head
        cut_bytes = b""
        if self._log:
            # If nothing was synced yet, the name of the file may not be on the disk, either.
            directories = () if note.kept else self._directories_to_sync()
            cut_bytes = self._log.adopt(note.kept, directories)
        return self._become_writer(cut_bytes, note, claim)

    def _become_writer(
        self, cut_bytes: bytes, note: writer_lock.LockNote, claim: int
    ) -> Lease:
        """Become the writer, with a new number. A missing journal is created by the first
        append.
        """
        self._epoch = max(_highest_epoch(note, self._log), self._epoch) + 1
        self._claim = claim or note.writer.claim
        if self._log:
            writer = writer_lock.current_writer(self._epoch, self._claim)
            self._lock_file.sign(writer, self._head, self._log.kept)
        self._leased = True
        return Lease(self._epoch, cut_bytes, self._head)

    def _create_log(self) -> LogFile:
        """Create the log file, or open it if another process has just created it.

        Raises `Fenced` if that process became the writer.
        """
        created = make_directories(self._directory, self._disk)
        try:
            log = LogFile(self._path, self._disk, new=True)
        except FileExistsError:
            log = self._open_log()
        try:
            note = writer_lock.read(self._directory)
            if note.writer.epoch >= self._epoch:
                raise Fenced(
                    f"{self._directory} was taken by {writer_lock.describe_holder(note.writer)}"
                )
            parents = [directory.parent for directory in created]
            to_sync = dict.fromkeys([*self._directories_to_sync(), *parents])  # each once
            log.adopt(kept_bytes=0, directories=tuple(to_sync))
            writer = writer_lock.current_writer(self._epoch, self._claim)
            self._lock_file.sign(writer, self._head, kept_bytes=0)
        except BaseException:
            log.close()
            raise
        return log

    def _open_log(self) -> LogFile:
        """Open and lock the log file. Raises `Held` or `Fenced`."""
        try:
            log = LogFile(self._path, self._disk)
        except Held:
            raise Held(_held_message(self._directory)) from None
        if not log.is_in_place():
            log.close()
            raise Fenced(f"{self._path} was replaced just now: open the session again")
        return log

    def _check_still_writer(self, log: LogFile) -> None:
        """Raise `Fenced` unless this is the writer. If only its note was lost, write the
        note again.
        """
        if not log.is_in_place():
            raise Fenced(
                f"{self._path} was moved, deleted or replaced while it was written: "
                "open the session again"
            )
        if self._lock_file.is_in_place():
            return
        self._check_no_successor(writer_lock.read(self._directory))
        # Only the note was lost or damaged. This process has the lock, so it is the writer.
        writer = writer_lock.current_writer(self._epoch, self._claim)
        self._lock_file.sign(writer, self._head, log.kept)

    def _check_no_successor(self, note: writer_lock.LockNote) -> None:
        """Raise `Fenced` if the note names a later writer than this one."""
        if note.writer.epoch > self._epoch:
            raise Fenced(
                f"writer {self._epoch} of {self._directory} lost the lock to writer "
                f"{note.writer.epoch}: {writer_lock.describe_holder(note.writer)}"
            )

    def _directories_to_sync(self) -> list[Path]:
        """Return the directories whose names lead to the journal, lowest first."""
        return [self._directory, *self._directory.parents[:2]]

    def _close(self) -> None:
        """Close the files, which releases the lock."""
        self._leased = False
        self._lock_file.close()
        if self._log:
            self._log.close()
        self._log = None


def _highest_epoch(note: writer_lock.LockNote, log: LogFile | None) -> int:
    """Return a number that no earlier writer has exceeded.

    Without a valid note, it is taken from the clock.
    """
    if note.state != "good" and log and log.count:
        return int(time())
    return note.writer.epoch


def _held_message(directory: Path) -> str:
    holder = writer_lock.describe_holder(writer_lock.read(directory).writer)
    return (
        f"session {directory.name} is being written by {holder}: join it with "
        f"`refold attach {directory.name}`, or end that one first"
    )
