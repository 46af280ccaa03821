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
from refold.journal.events.child_events import Checkpointed, PlaceRebuilt
from refold.journal.events.kinds import Said, SessionStarted, Started, TurnEnded
from refold.journal.home import JournalDirectory
from refold.place.checkpoints import Checkpoints
from refold.session.recorder import Recorder

memory = pytest.importorskip("obstore.store", reason="refold[cluster] is not installed")
pytestmark = pytest.mark.anyio
ONE = "20260101-000000-aaaa"


class Killed(BaseException):
    """The worker dies here."""


class Objects(TenantObjects):
    """A bucket that counts what is sent, and in which a worker can die before or after a use."""

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
        """A worker with a claim on the session."""
        with self.machine(name) as files:
            directory = self.work
            if self.sessions.exists(ONE):
                directory = files.bring(self.sessions, ONE, self.home).directory
            record = Recorder(self.sessions.store(ONE))
            await record.open()
            if not record.view.seq:
                self.work.mkdir()
                await record(SessionStarted(str(self.work)), Said("go"))
            followed = files.follow(ONE, record)
            try:
                await followed.arrive()
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
        taken = await self._machines.open_checkpoints(self.directory, ONE).take()
        changed = ((str(self.directory / name), "changed"),)
        await self.record(Checkpointed(taken.trees, changed=changed), kept=True)

    async def end_turn(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._files.run)
            await self.record(TurnEnded("answered"), kept=True)
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


async def test_a_worker_that_takes_over_has_the_files_of_the_last_turn_and_says_what_is_lost(
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


async def test_a_worker_that_comes_back_gets_the_newer_files_in_a_directory_of_the_session(
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


async def test_a_worker_that_starts_again_keeps_what_was_not_stored_yet(
    machines: Machines,
) -> None:
    async with machines.worker("a") as a:
        await a.write("one.py", "1")
        await a.end_turn()
        await a.write("one.py", "2")
    async with machines.worker("a") as again:
        assert files_in(again.directory) == {"one.py": "2"}
    assert machines.lost() == []


async def test_a_loss_before_any_files_were_stored_is_reported_once(
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


async def test_only_what_is_new_is_sent_and_old_packs_are_replaced(
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


async def test_many_packs_are_replaced_by_one(
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
async def test_a_worker_killed_at_any_use_of_the_bucket_loses_nothing_silently(
    machines: Machines, use: int
) -> None:
    """Around the pack, around its record, and before old records are deleted."""
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
async def test_a_take_over_that_is_killed_is_repeated_by_the_next_worker(
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


async def test_a_worker_that_lost_the_session_cannot_replace_the_files_of_its_successor(
    machines: Machines,
) -> None:
    """One that hung in its turn and stores its files late."""
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


async def test_files_that_could_not_be_restored_stay_stored(machines: Machines) -> None:
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


async def test_a_bucket_that_is_away_is_reported_once_and_the_next_turn_stores_all(
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
