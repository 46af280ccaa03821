"""A store in a directory of its own: the log file, the note of the writer, and the blobs.

    events.jsonl    one line for each event; locked by its writer (`log_file`, `reader`)
    pen             the note: the writer, and where the last line ended (`writer_lock`)
    blobs/          content that is too large for a line, by sha256 (`blobs`)
    views           a cache of folded views, for a long session (`view_cache`)

Directories have mode 0700 and files 0600. The methods of `port.Store` run in queues of the
threads of `writer_threads`. Only an append to an open file runs in the event loop itself,
because it fills the page cache and does not wait for the disk. If an append was slow, the
threads do the next ones for a while.

An append takes about 20 microseconds, but passing it to a thread and back takes 200 to 700.
With three appends in each step, that was a fifth of refold's own time. Events that are
collected until a batch is large enough for a thread would be lost in a crash.
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
PENALTY_SECONDS = 30.0  # during which the threads write after a slow write
MAX_DIRECT_BYTES = 256_000  # of one write in the event loop


class FileStore:
    """The store of one session, in its directory. Stores of one process share their `writers`.

    `root` is the directory of all sessions. It also has the key of the cache of views, and
    the blobs that several sessions share. Without `root`, views are not cached and blobs are
    not shared.
    """

    def __init__(
        self,
        directory: Path,
        writers: Writers | None = None,
        disk: Disk | None = None,
        root: Path | None = None,
    ) -> None:
        disk = disk or Disk()
        blob_files = BlobFiles(directory, disk, root)
        self._writers = writers or Writers()
        self._journal_writer = JournalWriter(directory, disk)
        self._reader = Reader(directory / log_file.FILE_NAME)
        self._sweep_blobs = blob_files.sweep
        self._write_queue = WorkQueue()
        self._read_queue = WorkQueue()
        self._sync_queue = WorkQueue(shared=True)
        self._slow_until = 0.0
        self.blobs: Blobs = FileBlobs(blob_files, self._writers)
        self.views: Views = NoViews()
        if root is not None:
            key_file = root / log_file.VIEWS_KEY_FILE
            work = (self._writers, self._read_queue)
            self.views = FileViews(directory, key_file, disk, self._reader, work)

    async def read_claim(self) -> int:
        return await self._writers.run(self._read_queue, self._journal_writer.read_claim)

    async def lease(self, claim: int = 0) -> Lease:
        return await self._writers.run(self._write_queue, partial(self._lease, claim))

    async def release(self) -> None:
        await self._writers.run(self._write_queue, self._journal_writer.release)
        if self._read_queue.busy:  # a view is being saved
            await self._writers.run(self._read_queue, lambda: None)  # wait for that

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        """Append the lines: at once if that is quick, otherwise in a thread."""
        if b"\n" in b"".join(lines):
            raise ValueError("a line of a journal holds no newline")
        work = partial(self._journal_writer.append, list(lines), expect, epoch, head)
        if not self._append_in_event_loop(work, sum(map(len, lines))):
            await self._writers.run(self._write_queue, work)

    def _append_in_event_loop(self, function: Callable[[], None], size: int) -> bool:
        """Append by calling `function` in this thread.

        Return False if another thread must do that, because the disk may be slow.
        """
        began = monotonic()
        may_be_slow = size > MAX_DIRECT_BYTES or began < self._slow_until
        if may_be_slow or not self._journal_writer.is_quick:
            return False
        is_done = self._writers.run_here(self._write_queue, function)
        if monotonic() - began > SLOW_WRITE_SECONDS:
            self._slow_until = monotonic() + PENALTY_SECONDS
        return is_done

    async def keep(self) -> None:
        if not self._journal_writer.is_all_kept:
            await self._writers.run(self._sync_queue, self._journal_writer.keep)

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return await self._writers.run(self._read_queue, partial(self._read, after))

    def _lease(self, claim: int) -> Lease:
        """Take the writer lock, and then remove the unfinished blobs of earlier writers."""
        lease = self._journal_writer.lease(claim)
        self._sweep_blobs()
        return lease

    def _read(self, after: int) -> Sequence[bytes]:
        return self._reader.read(after, self._journal_writer.size)


class FileBlobs:
    """The blobs in one session's directory."""

    def __init__(self, files: BlobFiles, writers: Writers) -> None:
        self._files, self._writers = files, writers
        self._get_queue, self._put_queue = WorkQueue(), WorkQueue()

    async def put(self, blob: bytes) -> str:
        return await self._writers.run(self._put_queue, partial(self._files.put, blob))

    async def get(self, name: str) -> bytes:
        return await self._writers.run(self._get_queue, partial(self._files.get, name))


class FileViews:
    """The cache of views in one session's directory. `work` has the threads and the read queue."""

    def __init__(
        self,
        directory: Path,
        key_file: Path,
        disk: Disk,
        reader: Reader,
        work: tuple[Writers, WorkQueue],
    ) -> None:
        self._directory, self._key_file, self._disk = directory, key_file, disk
        self._reader = reader
        self._writers, self._queue = work
        self._opened: ViewCache | None = None

    async def load(self, up_to: int | None = None) -> FoldedView | None:
        """Return a cached view, as `Views.load` does."""
        # Most sessions have no view, and this check needs no thread.
        if not self._is_stored():
            return None
        return await self._writers.run(self._queue, partial(self._load, up_to))

    def save_soon(self, view: "View", head: "Head") -> None:
        self._writers.start(self._queue, lambda: self._cache.save(view, head))

    def _is_stored(self) -> bool:
        return os.path.exists(self._directory / log_file.VIEWS_FILE_NAME)

    def _load(self, up_to: int | None) -> FoldedView | None:
        """Return a cached view, and let the reader skip the lines before it."""
        folded = self._cache.load(up_to)
        if folded is not None:
            self._reader.skip_to(folded.view.seq, folded.end)
        return folded

    @property
    def _cache(self) -> "ViewCache":
        if self._opened is None:
            # Imported late: few sessions are long enough to need it.
            from refold.journal.store.view_cache import ViewCache

            self._opened = ViewCache(self._directory, self._key_file, self._disk)
        return self._opened
