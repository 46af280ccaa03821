"""Takes and restores snapshots of a place, over a pipe. Implements `port.Snapshots`.

The place stores its snapshots with the same module as this machine, `checkpoints`. `begin`
starts a scan while the model answers. The answer to the scan contains the changes since the
previous snapshot, so `take` and a following `changes` usually need no further round trip.
"""

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

import anyio
from msgspec import Struct

from refold.errors import ConnectionLost, ToolFailed
from refold.place.elsewhere.home_packs import HomePacks
from refold.place.elsewhere.pipe import OpenCall, Pipe, PlaceAnswer
from refold.place.port import (
    Commit,
    FileChange,
    ReportProgress,
    SnapshotTaken,
    Trees,
)

_REUSE_SECONDS = 10.0  # reuse the result of a scan for this time
_WAIT_SECONDS = 1.0
_Kind = Literal["created", "changed", "deleted"]


class _Taken(Struct, frozen=True):
    trees: Trees
    left_out: tuple[str, ...]
    lost: tuple[str, ...]
    is_behind: bool
    notice: str
    changes: list[tuple[str, _Kind, int | None, int | None]] | None = None


class _Changes(Struct, frozen=True):
    changes: list[tuple[str, _Kind, int | None, int | None]]


class _Patch(Struct, frozen=True):
    changes: list[tuple[str, _Kind, int | None, int | None, str]]


class _Commits(Struct, frozen=True):
    commits: list[tuple[str, str, float]]


class _CommitTrees(Struct, frozen=True):
    trees: Trees


class _Restored(Struct, frozen=True):
    count: int


class _Request:
    """A request to a place that reports its progress: a scan, or other work on snapshots.

    `count` is the number of file changes noted before the request, `since` the newest snapshot
    at that time.
    """

    def __init__(self, count: int, since: Trees = ()) -> None:
        self.count, self.began, self.since = count, time.monotonic(), since
        self.progress = 0, 0
        self.call: OpenCall | None = None

    def receive(self, answer: PlaceAnswer) -> None:
        """Store the progress, if a frame of the answer reports it."""
        done, total = answer.record.get("done"), answer.record.get("total")
        if isinstance(done, int) and isinstance(total, int):
            self.progress = done, total


class PlaceSnapshots:
    """The snapshots of a place. `on_change` is called after files were restored.

    `packs` are copies of the snapshots on this machine, or None.
    """

    def __init__(
        self, pipe: Pipe, on_change: Callable[[], None], packs: HomePacks | None = None
    ) -> None:
        self._pipe, self._on_change, self._packs = pipe, on_change, packs
        self._known_trees = set[str]()  # trees that the place certainly has
        self._lock = threading.Lock()
        self._count = 0  # the number of noted changes
        self._behind = False  # files may have changed since the last scan
        self._scan: _Request | None = None
        self._connections = 0
        self._notice = ""
        self._newest: Trees = ()
        # The newest comparison that was sent with a snapshot.
        self._compared = dict[tuple[Trees, Trees], tuple[FileChange, ...]]()

    @property
    def is_behind(self) -> bool:
        return self._behind

    @property
    def notice(self) -> str:
        return self._notice

    def begin(self) -> None:
        # Beginning may have to connect, and the caller is an event loop.
        threading.Thread(target=self._begin_quietly, daemon=True).start()

    def note_change(self) -> None:
        self.forget()
        self._behind = True

    def forget(self) -> None:
        self._count += 1

    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken:
        """Return a snapshot of the present files. Raises `ToolFailed`."""
        scan = await anyio.to_thread.run_sync(self._current_scan, abandon_on_cancel=True)
        assert scan.call is not None  # the scan was started
        await _wait(scan, report)
        try:
            taken = scan.call.result().read(_Taken)
        except ToolFailed as error:
            self._scan = None  # the next scan may succeed
            if isinstance(error, ConnectionLost):
                raise ToolFailed(str(error)) from error  # the failed call changed nothing
            raise
        self._notice = taken.notice
        if scan.count == self._count:
            self._behind = False
        self._note_known_trees(taken.trees)
        self._newest = taken.trees
        if taken.changes is not None:
            changes = tuple(FileChange(*change) for change in taken.changes)
            self._compared = {(scan.since, taken.trees): changes}
        return SnapshotTaken(taken.trees, taken.left_out, taken.lost)

    async def secure(self, arguments: bytes, report: ReportProgress | None = None) -> None:
        """Make the place store lent contents that a call with `arguments` may delete."""
        from refold.place.snapshot_lender import may_delete_objects

        if not may_delete_objects(arguments):
            return
        request = _Request(self._count)
        begin = partial(self._pipe.begin, "secure", raw=arguments, on_frame=request.receive)
        request.call = await anyio.to_thread.run_sync(begin)
        await _wait(request, report)
        request.call.result()

    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]:
        """Return the changes, which often came with the newest snapshot."""
        if (changes := self._compared.get((before, after))) is not None:
            return changes
        self._send_missing_trees(before, after)
        answer = self._pipe.ask("changes", before=before, after=after)
        return tuple(FileChange(*change) for change in answer.read(_Changes).changes)

    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        self._send_missing_trees(before, after)
        answer = self._pipe.ask("patch", before=before, after=after, only=tuple(paths))
        return tuple(
            (FileChange(path, kind, added, removed), text)
            for path, kind, added, removed, text in answer.read(_Patch).changes
        )

    def commits(self, head: str) -> tuple[Commit, ...]:
        answer = self._pipe.ask("commits", head=head)
        return tuple(Commit(*commit) for commit in answer.read(_Commits).commits)

    def commit_trees(self, commit: str) -> Trees:
        return self._pipe.ask("commit_trees", commit=commit).read(_CommitTrees).trees

    async def restore(
        self,
        current: Trees,
        to: Trees,
        paths: Collection[str] = (),
        report: ReportProgress | None = None,
    ) -> int:
        """Restore files and return their number. If cancelled, wait until the place stops."""
        await anyio.to_thread.run_sync(self._send_missing_trees, current, to)
        request = _Request(self._count)
        begin = partial(
            self._pipe.begin, "restore", on_frame=request.receive, current=current, to=to,
            only=tuple(paths),
        )  # fmt: skip
        request.call = call = await anyio.to_thread.run_sync(begin)
        try:
            await _wait(request, report)
        finally:
            # If the restore is stopped, each file has its old or its wanted content once
            # the call has ended.
            call.stop()
            with anyio.CancelScope(shield=True):
                await _wait(request, report=None)
            self.note_change()
            self._on_change()
        return call.result().read(_Restored).count

    def report_failure(self, reason: str) -> None:
        self._notice = reason

    def _send_missing_trees(self, *snapshots: Trees) -> None:
        """Send the place the trees of the snapshots that the place may have lost."""
        if self._packs is None:
            return
        self._forget_lost_connection()
        trees = {tree for snapshot in snapshots for _root, tree in snapshot}
        missing_trees = trees - self._known_trees
        if missing_trees:
            self._packs.give_back(self._pipe.begin, missing_trees)
            self._known_trees |= missing_trees

    def _note_known_trees(self, trees: Trees) -> None:
        self._forget_lost_connection()
        self._known_trees.update(tree for _root, tree in trees)

    def _forget_lost_connection(self) -> None:
        """After a new connection, forget which snapshots the place has.

        A reconnected place may be another one, for example a new container.
        """
        if self._connections != self._pipe.connections:
            self._connections = self._pipe.connections
            self._known_trees.clear()

    def _begin_quietly(self) -> None:
        """Begin a scan. If that fails, the next `take` tries again and reports the error."""
        try:
            self._current_scan()
        except ToolFailed:
            self._scan = None

    def _current_scan(self) -> _Request:
        """Return a scan of the present files: one that is running or recent, or a new one."""
        with self._lock:
            scan = self._scan
            if scan is not None and scan.call is not None and scan.count == self._count:
                is_recent = time.monotonic() - scan.began <= _REUSE_SECONDS
                is_running = not scan.call.done.is_set()
                if scan.call.error is None and (is_running or is_recent):
                    return scan
            # The place keeps its own count, to know whether an earlier scan is still valid.
            if self._behind:
                self._pipe.tell("note_change")
            elif scan is not None and scan.count != self._count:
                self._pipe.tell("forget")
            self._scan = scan = _Request(self._count, self._newest)
            scan.call = self._pipe.begin("take", on_frame=scan.receive, since=scan.since)
            return scan


async def _wait(request: _Request, report: ReportProgress | None) -> None:
    """Wait until the request is done, and report its progress meanwhile."""
    assert request.call is not None  # it was sent
    while not request.call.done.is_set():
        await anyio.to_thread.run_sync(
            request.call.done.wait, _WAIT_SECONDS, abandon_on_cancel=True
        )
        if report is not None and not request.call.done.is_set():
            report(*request.progress)
