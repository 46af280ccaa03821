"""A checkpoint is recorded also when the one before it was lost with its place."""

from collections.abc import Collection

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.journal.events.kinds import Checkpointed
from refold.journal.store.port import MemoryStore
from refold.place.port import (
    Commit,
    FileChange,
    ReportProgress,
    SnapshotTaken,
    Trees,
)
from refold.testing.providers import ScriptedProvider
from tests.engine.house import BOOK, entries, run, world


class LostSnapshots:
    """Each `take` finds other files, and no earlier snapshot exists any more."""

    is_behind = False
    notice = ""

    def __init__(self) -> None:
        self.count = 0
        self.failures = list[str]()

    def begin(self) -> None:
        pass

    def note_change(self) -> None:
        self.is_behind = True

    def forget(self) -> None:
        pass

    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken:
        self.count, self.is_behind = self.count + 1, False
        return SnapshotTaken((("/work", f"tree {self.count}"),))

    async def secure(self, arguments: bytes, report: ReportProgress | None = None) -> None:
        pass

    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]:
        raise ToolFailed("git failed: bad object")

    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        raise NotImplementedError

    def commits(self, head: str) -> tuple[Commit, ...]:
        return ()

    def commit_trees(self, commit: str) -> Trees:
        return ()

    async def restore(
        self,
        current: Trees,
        to: Trees,
        paths: Collection[str] = (),
        report: ReportProgress | None = None,
    ) -> int:
        raise NotImplementedError

    def report_failure(self, reason: str) -> None:
        self.failures.append(reason)


def test_a_checkpoint_is_recorded_although_the_previous_one_was_lost() -> None:
    snapshots, store = LostSnapshots(), MemoryStore()

    provider = ScriptedProvider([BOOK], "Done.")
    run(store, replace(world(provider), snapshots=snapshots), "Book a taxi")

    saved = [e.event for e in entries(store) if isinstance(e.event, Checkpointed)]
    assert saved == [
        Checkpointed((("/work", "tree 1"),)), Checkpointed((("/work", "tree 2"),))
    ]  # fmt: skip
    assert snapshots.failures == []
