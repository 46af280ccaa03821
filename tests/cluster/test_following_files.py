"""Files of a session follow it from worker to worker, with a bucket in memory.

Each machine has the same paths and files of its own: its directory is moved into place while it works.
"""

import os
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.app.workspace import checkpoints
from refold.client.nodes.following_files import FollowedFiles, FollowingFiles
from refold.cluster import workspace_packs
from refold.cluster.bucket import BucketError, TenantObjects
from refold.cluster.workspace_packs import StoredFiles, WorkspacePacks
from refold.config.paths import Paths
from refold.errors import Disconnected
from refold.journal.events.child_events import Checkpointed, FilesRestored, PlaceRebuilt
from refold.journal.events.kinds import Event, Said, SessionStarted, Started, TurnEnded
from refold.journal.journal_directory import JournalDirectory
from refold.place.checkpoints import Checkpoints
from refold.session.recorder import Recorder
from refold.views.notices import place_rebuilt_text

memory = pytest.importorskip("obstore.store", reason="refold[cluster] is not installed")
pytestmark = pytest.mark.anyio
ONE = "20260101-000000-aaaa"


class Killed(BaseException):
    """Raised where the worker dies."""


class Objects(TenantObjects):
    """A bucket that counts the sent bytes, and in which a worker can die before or after a
    use.
    """

    def __init__(self, bucket: Any) -> None:
        super().__init__(bucket, "s3://b", "acme")
        self.sent, self.uses, self.die_at = 0, 0, -1

    def put(self, key: str, content: bytes | Path) -> None:
        self._use()
        self.sent += len(content) if isinstance(content, bytes) else content.stat().st_size
        super().put(key, content)
        self._use()

    def delete(self, keys: Sequence[str]) -> None:
        self._use()
        super().delete(keys)

    def _use(self) -> None:
        self.uses += 1
        if self.uses == self.die_at:
            raise Killed


class Machines:
    """`work` is the directory of the session on the machine that runs."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._here = directory, directory / "machine"
        self.work, self.home = self._here / "work", self._here / "home"
        self.objects = Objects(memory.MemoryStore())
        self.sessions = JournalDirectory(directory / "sessions")
        self.problems = list[str]()

    @contextmanager
    def machine(self, name: str) -> Generator[FollowingFiles]:
        own = self._directory / name
        if own.exists():
            own.rename(self._here)
        self.home.mkdir(parents=True, exist_ok=True)
        paths = Paths(self.home, self.home, self.home)
        try:
            yield FollowingFiles(self.objects, paths, os.environ, self.problems.append)
        finally:
            self._here.rename(own)

    @asynccontextmanager
    async def worker(self, name: str) -> AsyncGenerator["Worker"]:
        """Yield a worker with a claim on the session."""
        with self.machine(name) as files:
            directory = self.work
            if self.sessions.exists(ONE):
                directory = files.restore(self.sessions, ONE, self.home).directory
            record = Recorder(self.sessions.store(ONE))
            await record.open()
            if not record.view.seq:
                self.work.mkdir()
                await record(SessionStarted(str(self.work)), Said("go"))
            followed = files.follow(ONE, record)
            try:
                await followed.record_arrival()
                record.hub.subscribe(followed.note)
                yield Worker(self, directory, record, followed)
            finally:
                await record.close()

    def open_checkpoints(self, directory: Path, session: str) -> Checkpoints:
        paths = Paths(self.home, self.home, self.home)
        return checkpoints((directory,), paths, os.environ, session)

    def lost(self) -> list[PlaceRebuilt]:
        entries, _ = self.sessions.entries(ONE)
        return [entry.event for entry in entries if isinstance(entry.event, PlaceRebuilt)]


class Worker:
    def __init__(
        self, machines: Machines, directory: Path, record: Recorder, files: FollowedFiles
    ) -> None:
        self.directory, self._machines = directory, machines
        self.record, self._files = record, files

    async def write(self, name: str, text: str) -> None:
        """A call that changes a file, and the checkpoint after it."""
        await self.record(Started(f"call-{self.record.view.seq}"))
        (self.directory / name).write_text(text)
        trees = await self._machines.open_checkpoints(self.directory, ONE).take()
        changed = ((str(self.directory / name), "changed"),)
        await self.record(Checkpointed(trees.trees, changed=changed), kept=True)

    async def rewind(self, name: str, text: str) -> None:
        """Restore a file, record that, and take the checkpoint after it."""
        (self.directory / name).write_text(text)
        checkpoints = self._machines.open_checkpoints(self.directory, ONE)
        trees = await checkpoints.take()
        newest = self.record.view.checkpoints.seq
        await self._record_and_store(
            FilesRestored(newest, newest, 1), Checkpointed(trees.trees)
        )

    async def end_turn(self) -> None:
        await self._record_and_store(TurnEnded("answered"))

    async def _record_and_store(self, *events: Event) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._files.run)
            for event in events:
                await self.record(event, kept=True)
            await self._files.finish()
            group.cancel_scope.cancel()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def files_in(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


async def test_a_worker_that_takes_over_restores_the_files_of_the_last_turn_and_records_lost_files(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("two.py", "2")  # and dies
    async with machines.worker("b") as b:
        assert b.directory == machines.work
        assert files_in(b.directory) == {"one.py": "1"}

    (event,) = machines.lost()
    assert (event.place, event.restored, event.files, event.calls) == ("", True, 1, 1)
    assert event.lost == (str(machines.work / "two.py"),)


async def test_a_worker_with_older_files_restores_the_newer_ones_in_a_directory_of_the_session(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "old")
        await a.end_turn()
    async with machines.worker("b") as b:
        await b.write("one.py", "new")
        await b.end_turn()
    async with machines.worker("a") as again:
        own = machines.home / "server" / "workspaces" / ONE
        assert again.directory == own
        assert files_in(own) == {"one.py": "new"}
        assert files_in(machines.work) == {"one.py": "old"}


async def test_a_restarted_worker_keeps_its_files_that_were_not_stored_yet(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("one.py", "2")
    async with machines.worker("a") as again:
        assert files_in(again.directory) == {"one.py": "2"}
    assert machines.lost() == []


async def test_a_loss_of_files_that_were_never_stored_is_recorded_once(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
    for _ in range(2):
        async with machines.worker("b") as b:
            b.directory.mkdir(exist_ok=True)

    (event,) = machines.lost()
    assert (event.restored, event.calls) == (False, 1)
    assert "no checkpoint of it had left" in event.problem


async def test_a_session_without_stored_files_continues_in_its_own_empty_directory(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
    async with machines.worker("b") as b:
        assert b.directory == machines.work  # and not where the worker was started
        assert files_in(b.directory) == {}


async def test_a_turn_without_changes_stores_no_checkpoint_of_another_worker(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("one.py", "2")  # and dies: this checkpoint has not left
    async with machines.worker("b") as b:
        await b.end_turn()
    async with machines.worker("c") as c:
        assert files_in(c.directory) == {"one.py": "1"}

    assert machines.problems == []
    assert [(event.restored, event.calls) for event in machines.lost()] == [
        (True, 1),
        (True, 0),
    ]


async def test_files_are_stored_in_the_bucket_after_a_rewind_before_the_next_turn(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("one.py", "2")
        await a.end_turn()
        await a.rewind("one.py", "1")
    async with machines.worker("b") as b:
        assert files_in(b.directory) == {"one.py": "1"}


async def test_a_returning_worker_records_the_unstored_files_of_another_worker_as_lost(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
    async with machines.worker("a") as again:
        assert files_in(again.directory) == {"one.py": "1"}
    assert machines.lost() == []
    async with machines.worker("b") as b:
        await b.write("two.py", "2")
    async with machines.worker("a") as last:
        assert files_in(last.directory) == {"one.py": "1"}

    event = machines.lost()[-1]
    assert (event.restored, event.problem, event.calls) == (False, "", 1)
    assert event.checkpoint > 0
    assert [path.rpartition("/")[2] for path in event.lost] == ["two.py"]


async def test_a_returning_worker_records_that_files_reported_as_lost_are_there_again(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
    async with machines.worker("b") as b:
        b.directory.mkdir(exist_ok=True)
    for _ in range(2):
        async with machines.worker("a") as again:
            assert files_in(again.directory) == {"one.py": "1"}

    loss, is_back = machines.lost()
    assert "no checkpoint of it had left" in loss.problem
    assert (is_back.restored, is_back.problem, is_back.calls) == (False, "", 0)
    assert "which had it before: the files are those after" in place_rebuilt_text(is_back)


async def test_only_changed_files_are_sent_to_the_bucket_after_a_turn(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        (a.directory / "large.bin").write_bytes(os.urandom(500_000))
        await a.write("one.py", "0")
        await a.end_turn()
        first, machines.objects.sent = machines.objects.sent, 0
        await a.write("one.py", "1")
        await a.end_turn()

    assert first > 500_000
    assert machines.objects.sent < 5_000
    async with machines.worker("b") as b:
        assert len((b.directory / "large.bin").read_bytes()) == 500_000


async def test_packs_of_files_above_the_limit_are_replaced_by_one(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_packs, "MAX_PACKS", 2)
    async with machines.worker("a") as a:
        for number in range(4):
            await a.write("one.py", str(number))
            await a.end_turn()

    names = [item.key.rpartition(".")[2] for item in machines.objects.list(ONE)]
    assert sorted(names) == ["json", "pack", "pack"]
    async with machines.worker("b") as b:
        assert files_in(b.directory) == {"one.py": "3"}


@pytest.mark.parametrize("use", range(1, 6))
async def test_a_worker_killed_at_any_bucket_request_leaves_its_files_or_a_recorded_loss(
    machines: Machines, use: int
) -> None:
    """The kill comes before or after the pack, before or after its record, or before old
    records are deleted.
    """
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("one.py", "2")
        machines.objects.uses, machines.objects.die_at = 0, use
        with pytest.raises(BaseExceptionGroup):
            await a.end_turn()
    machines.objects.die_at = -1
    async with machines.worker("b") as b:
        text = files_in(b.directory)["one.py"]

    (event,) = machines.lost()
    assert (text, len(event.lost)) in [("1", 1), ("2", 0)]
    assert text == ("1" if use < 4 else "2")


@pytest.mark.parametrize("use", range(1, 4))
async def test_a_killed_restore_of_files_is_repeated_by_the_next_worker(
    machines: Machines, use: int
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("two.py", "2")
    machines.objects.uses, machines.objects.die_at = 0, use
    with pytest.raises(Killed):
        async with machines.worker("b"):
            pass
    machines.objects.die_at = -1
    async with machines.worker("c") as c:
        assert files_in(c.directory) == {"one.py": "1"}

    assert [event.calls for event in machines.lost()] == [1, 0]


async def test_a_hung_worker_cannot_replace_the_stored_files_of_its_successor(
    machines: Machines,
) -> None:
    """The worker hung in its turn and stores its files late."""
    async with machines.worker("a") as hung:
        await hung.write("one.py", "1")
        await hung.end_turn()
        packs = WorkspacePacks(machines.objects, ONE, machines.open_checkpoints)
        before = packs.newest()
        await hung.write("one.py", "of the hung worker")
        newest, epoch = hung.record.view.checkpoints.newest, hung.record.epoch
    late = StoredFiles(epoch, newest.seq + 1_000, newest.trees)
    async with machines.worker("b") as b:
        await b.write("one.py", "3")
        await b.end_turn()
    with machines.machine("a"):
        packs.push(machines.work, before, late)
    async with machines.worker("c") as c:
        assert files_in(c.directory) == {"one.py": "3"}


async def test_a_worker_reopens_a_session_that_another_worker_used_while_it_was_opened(
    machines: Machines,
) -> None:
    """One whose own files were the newest then, so that it restored nothing."""
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
    with machines.machine("a") as files:
        files.restore(machines.sessions, ONE, machines.home)
    async with machines.worker("b") as b:
        await b.write("two.py", "2")
    with machines.machine("a"):
        record = Recorder(machines.sessions.store(ONE))
        await record.open()
        with pytest.raises(Disconnected, match="while this one opened it"):
            await files.follow(ONE, record).record_arrival()
        await record.close()
    async with machines.worker("a") as again:
        assert files_in(again.directory) == {"one.py": "1"}

    assert [event.calls for event in machines.lost()] == [0, 1]


async def test_stored_files_stay_in_the_bucket_after_a_failed_restore(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
    (pack,) = [
        item.key for item in machines.objects.list(ONE) if item.key.endswith(".pack")
    ]
    content = machines.objects.get(pack)
    machines.objects.put(pack, b"damaged")
    async with machines.worker("b") as b:
        b.directory.mkdir(exist_ok=True)
        await b.write("other.py", "")
        await b.end_turn()
    machines.objects.put(pack, content or b"")
    async with machines.worker("c") as c:
        assert files_in(c.directory) == {"one.py": "1"}

    assert [event.restored for event in machines.lost()] == [False, True]


async def test_an_unreachable_bucket_is_reported_once_and_the_next_turn_stores_all_files(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BucketError("it is away")

    async with machines.worker("a") as a:
        with monkeypatch.context() as away:
            away.setattr(machines.objects, "put", refuse)
            for number in range(2):
                await a.write(f"{number}.py", "")
                await a.end_turn()
        assert len(machines.problems) == 1
        assert "it is away" in machines.problems[0]
        await a.write("2.py", "")
        await a.end_turn()
    async with machines.worker("b") as b:
        assert sorted(files_in(b.directory)) == ["0.py", "1.py", "2.py"]
