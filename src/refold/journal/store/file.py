"""A store in a directory of its own: the log file, the note of the writer, and the blobs.

    events.jsonl   one line for each event; locked by its writer    (log_file, reader)
    `pen`          the writer, and where the last line ended        (writer_lock)
    blobs/         what is too large for a line, by sha256          (blobs)
    views          a cache of folded views, for a long session      (view_cache)

Directories have mode 0700 and files 0600. Each promise of `store.Store` is carried out in a
queue of the threads of `writer_threads`. Only an append to an open file is done by the event
loop itself: it fills the page cache and does not wait for the disk. If such a write was
slow, the threads append for a while.

An append takes about 20 microseconds, a hop to a thread and back 200 to 700: with three
appends a step, that was a fifth of refold's own time. Events that are held back until a
batch is worth a hop would be lost in a crash.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from refold.journal.store import log_file
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.journal.store.journal_writer import JournalWriter
from refold.journal.store.port import Blobs, FoldedView, Lease, NoViews, Views
from refold.journal.store.reader import Reader
from refold.journal.store.writer_threads import WorkQueue, Writers

if TYPE_CHECKING:
    from refold.journal.events.codec import Head
    from refold.journal.state.fold import View
    from refold.journal.store.view_cache import ViewCache

SLOW_WRITE_SECONDS = 0.02  # a slower write has waited for the disk
PENALTY_SECONDS = 30.0  # in which the threads write after that
MAX_DIRECT_BYTES = 256_000  # of one write in the event loop


class FileStore:
    """One session's directory. Stores of one process share their `writers`.

    `root` is the directory of all sessions, with the key of the cache of views and shared blobs.
    Without it, there are none.
    """

    def __init__(
        self,
        directory: Path,
        writers: Writers | None = None,
        disk: Disk | None = None,
        root: Path | None = None,
    ) -> None:
        self._writers, disk = writers or Writers(), disk or Disk()
        self._ledger, files = (
            JournalWriter(directory, disk),
            BlobFiles(directory, disk, root),
        )
        self._reader, self._sweep = Reader(directory / log_file.FILE_NAME), files.sweep
        self._writing, self._reading = WorkQueue(), WorkQueue()
        self._keeping = WorkQueue(shared=True)
        self._slow_until = 0.0
        self.blobs: Blobs = FileBlobs(files, self._writers)
        self.views: Views = NoViews()
        if root is not None:
            work, key_file = (self._writers, self._reading), root / log_file.VIEWS_KEY_FILE
            self.views = FileViews(directory, key_file, disk, self._reader, work)

    async def read_claim(self) -> int:
        return await self._writers.run(self._reading, self._ledger.read_claim)

    async def lease(self, claim: int = 0) -> Lease:
        return await self._writers.run(self._writing, partial(self._lease, claim))

    async def release(self) -> None:
        await self._writers.run(self._writing, self._ledger.release)
        if self._reading.busy:  # a view is being saved
            await self._writers.run(self._reading, lambda: None)

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        if b"\n" in b"".join(lines):
            raise ValueError("a line of a journal holds no newline")
        work = partial(self._ledger.append, list(lines), expect, epoch, head)
        if not self._append_here(work, sum(map(len, lines))):
            await self._writers.run(self._writing, work)

    def _append_here(self, function: Callable[[], None], size: int) -> bool:
        began = monotonic()
        if size > MAX_DIRECT_BYTES or began < self._slow_until or not self._ledger.is_quick:
            return False
        is_done = self._writers.run_here(self._writing, function)
        if monotonic() - began > SLOW_WRITE_SECONDS:
            self._slow_until = monotonic() + PENALTY_SECONDS
        return is_done

    async def keep(self) -> None:
        if not self._ledger.is_all_kept:
            await self._writers.run(self._keeping, self._ledger.keep)

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return await self._writers.run(self._reading, partial(self._read, after))

    def _lease(self, claim: int) -> Lease:
        lease = self._ledger.lease(claim)
        self._sweep()
        return lease

    def _read(self, after: int) -> Sequence[bytes]:
        return self._reader.read(after, self._ledger.size)


class FileBlobs:
    """The blobs in one session's directory."""

    def __init__(self, files: BlobFiles, writers: Writers) -> None:
        self._files, self._writers = files, writers
        self._reading, self._putting = WorkQueue(), WorkQueue()

    async def put(self, blob: bytes) -> str:
        return await self._writers.run(self._putting, partial(self._files.put, blob))

    async def get(self, name: str) -> bytes:
        return await self._writers.run(self._reading, partial(self._files.get, name))


class FileViews:
    """The cache of views in one session's directory. `work` is the queue of reads."""

    def __init__(
        self,
        directory: Path,
        key_file: Path,
        disk: Disk,
        reader: Reader,
        work: tuple[Writers, WorkQueue],
    ) -> None:
        self._directory, self._key_file, self._disk = directory, key_file, disk
        self._reader, (self._writers, self._queue) = reader, work
        self._opened: ViewCache | None = None

    async def load(self, up_to: int | None = None) -> FoldedView | None:
        if not self._is_stored():  # as of most sessions: without a hop to a thread
            return None
        return await self._writers.run(self._queue, partial(self._load, up_to))

    def save_soon(self, view: "View", head: "Head") -> None:
        self._writers.start(self._queue, lambda: self._cache.save(view, head))

    def _is_stored(self) -> bool:
        return os.path.exists(self._directory / log_file.VIEWS_FILE_NAME)

    def _load(self, up_to: int | None) -> FoldedView | None:
        folded = self._cache.load(up_to)
        if folded is not None:
            self._reader.skip_to(folded.view.seq, folded.end)
        return folded

    @property
    def _cache(self) -> "ViewCache":
        if self._opened is None:
            # Few sessions are long enough to need it.
            from refold.journal.store.view_cache import ViewCache

            self._opened = ViewCache(self._directory, self._key_file, self._disk)
        return self._opened
