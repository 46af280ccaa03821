"""Workers that share sessions: a session is open in a worker for as long as that has a claim on it."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Literal

import anyio
import msgspec
import pytest
from anyio import to_thread
from anyio.abc import ObjectReceiveStream
from msgspec import Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.host import HostPaths
from refold.client.host_ports import LocalOrders
from refold.client.launch import Launch
from refold.client.new_conversation import NewConversation
from refold.client.nodes.following_files import FollowingFiles
from refold.client.nodes.services import Services
from refold.client.nodes.worker_host import WorkerHost
from refold.client.protocol import Queue
from refold.cluster.bucket import StoredObject, TenantObjects
from refold.cluster.claims import WorkerClaim, WorkerClaims
from refold.cluster.database import Database
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.errors import Disconnected
from refold.journal.events.kinds import Entry, Said, TurnEnded
from refold.journal.session_index import SessionIndex
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store.port import MemoryStore, Store
from refold.testing import MemorySessions, ScriptedProvider

pytestmark = pytest.mark.anyio
SESSION_ID = "20260101-000000-aaaa"
_LIMIT_SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Runner:
    """A runner that hands out the claims of a test."""

    def __init__(self) -> None:
        self._claims = WorkerClaims()

    def give(self, number: int, session: str = SESSION_ID) -> WorkerClaim:
        claim = WorkerClaim(session, number, acknowledge=_ignore, release=self._release)
        self._claims.add(claim)
        return claim

    async def lose(self, claim: WorkerClaim) -> None:
        """Cancel a claim, and wait for its end."""
        claim.cancel()
        while self._claims:
            await self._claims.wait_removed()

    async def wake(self, session: str) -> None:
        self._claims.wake_all()

    async def stop(self, session: str, reason: str = "") -> None:
        raise NotImplementedError

    def claims(self) -> AsyncGenerator[WorkerClaim]:
        return self._claims.take_new()

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def drain(self) -> None:
        raise NotImplementedError

    async def _release(self, claim: WorkerClaim) -> None:
        self._claims.remove(claim)


class Bus:
    """A bus without other processes."""

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def publish(self, session: str, document: bytes) -> None:
        pass

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[ObjectReceiveStream[bytes]]:
        send, receive = anyio.create_memory_object_stream[bytes]()
        with send, receive:
            yield receive


class OrdersOfWorkers(LocalOrders):
    """The orders of one session. The first claim begins them."""

    async def read_start(self, session: str) -> tuple[bytes, None]:
        return msgspec.json.encode(NewConversation()), None

    async def read_deletion(self, session: str) -> None:
        return None


class OwnServices(Services, frozen=True, kw_only=True):
    """The services that workers share, without a server."""

    own: tuple[Runner, OrdersOfWorkers]

    def runner(self, on_full: Callable[[], None] = lambda: None) -> Runner:
        return self.own[0]

    def orders(self, runner: object) -> OrdersOfWorkers:  # pyright: ignore[reportIncompatibleMethodOverride] - those that a worker uses
        return self.own[1]

    def bus(self, role: Literal["worker", "web"]) -> Bus:
        return Bus()


class Worker(Struct, frozen=True):
    host: WorkerHost
    runner: Runner


class Workers:
    """Workers that run one session of `home`."""

    def __init__(self, home: SessionIndex, directory: Path) -> None:
        self.home, self._directory = home, directory
        self._orders = OrdersOfWorkers()

    @asynccontextmanager
    async def start(
        self, *replies: str, files: FollowingFiles | None = None
    ) -> AsyncGenerator[Worker]:
        places, runner = paths(os.environ), Runner()

        def launch_at(directory: Path, _: object, draft: NewConversation) -> Launch:
            loaded = load_folder_settings(directory, places, os.environ, {"memory": False})
            options = LaunchOptions(
                directory=directory, sessions=self.home, provider=ScriptedProvider(*replies)
            )
            return Launch(App(loaded.settings, places, os.environ, options), {})

        unused = Database("postgresql://nowhere/refold")
        services = OwnServices(database=unused, own=(runner, self._orders))
        state = self._directory / "state"
        host = WorkerHost(
            services,
            self.home,
            HostPaths(self._directory, state, state),
            launch_at,
            files=files,
        )
        async with host.run():
            yield Worker(host, runner)

    async def say(self, claim: WorkerClaim, text: str) -> None:
        """Have the worker of the claim answer a message."""
        turns = self.count(TurnEnded)
        placed = await self._orders.put(SESSION_ID, Queue(text, client_key=text))
        claim.wake()
        await placed.result()
        while self.count(TurnEnded) == turns:
            await anyio.sleep(0.01)

    def count(self, kind: type) -> int:
        return sum(isinstance(entry.event, kind) for entry in self.entries)

    @property
    def entries(self) -> Sequence[Entry]:
        return self.home.entries(SESSION_ID)[0] if self.home.exists(SESSION_ID) else ()


async def test_a_worker_that_reopens_a_session_continues_after_the_events_of_another_worker(
    tmp_path: Path,
) -> None:
    workers = Workers(MemorySessions(), tmp_path)
    with anyio.fail_after(_LIMIT_SECONDS):
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(workers.start("A.", "C."))
            second = await stack.enter_async_context(workers.start("B."))
            claim = first.runner.give(1)
            await workers.say(claim, "one")
            await first.runner.lose(claim)
            while first.host.conversations:
                await anyio.sleep(0.01)
            claim = second.runner.give(2)
            await workers.say(claim, "two")
            await second.runner.lose(claim)
            await workers.say(first.runner.give(3), "three")

    texts = [e.event.text for e in workers.entries if isinstance(e.event, Said)]
    assert texts == ["one", "two", "three"]
    assert [entry.epoch for entry in workers.entries if isinstance(entry.event, Said)] == [
        1, 2, 3,
    ]  # fmt: skip


async def test_a_slow_restore_of_files_does_not_delay_the_next_session_of_a_worker(
    tmp_path: Path,
) -> None:
    store = pytest.importorskip("obstore.store", reason="refold[cluster] is not installed")

    class SlowBucket(TenantObjects):
        def list(self, folder: str = "") -> Iterator[StoredObject]:
            if folder.startswith(SESSION_ID):
                are_asked_for.set()
                are_there.wait(_LIMIT_SECONDS)
            return super().list(folder)

    are_asked_for, are_there = Event(), Event()
    workers, other = Workers(MemorySessions(), tmp_path), "20260101-000000-bbbb"
    bucket = SlowBucket(store.MemoryStore(), "s3://b", "default")
    files = FollowingFiles(bucket, paths(os.environ), os.environ, print)
    with anyio.fail_after(_LIMIT_SECONDS):
        async with workers.start() as first:
            for number, session in enumerate((SESSION_ID, other), 1):
                claim = first.runner.give(number, session)
                while session not in [one.session.id for one in first.host.conversations]:
                    await anyio.sleep(0.01)
                await first.runner.lose(claim)
        async with workers.start(files=files) as second:
            second.runner.give(3)
            await to_thread.run_sync(are_asked_for.wait)
            second.runner.give(4, other)
            while other not in [chat.session.id for chat in second.host.conversations]:
                await anyio.sleep(0.01)
            are_there.set()


async def test_a_session_that_is_slow_to_open_does_not_delay_the_next_session(
    tmp_path: Path,
) -> None:
    class SlowSessions(MemorySessions):
        def directories(self, session: str) -> SessionDirectories:
            if session == SESSION_ID and is_slow.is_set():
                is_asked_for.set()
                is_there.wait(_LIMIT_SECONDS)
            return super().directories(session)

    is_slow, is_asked_for, is_there = Event(), Event(), Event()
    workers, other = Workers(SlowSessions(), tmp_path), "20260101-000000-bbbb"
    with anyio.fail_after(_LIMIT_SECONDS):
        async with workers.start() as first:
            for number, session in enumerate((SESSION_ID, other), 1):
                claim = first.runner.give(number, session)
                while session not in [one.session.id for one in first.host.conversations]:
                    await anyio.sleep(0.01)
                await first.runner.lose(claim)
        is_slow.set()
        async with workers.start() as second, anyio.create_task_group() as group:
            group.start_soon(second.host.open, SESSION_ID)
            await to_thread.run_sync(is_asked_for.wait)
            group.start_soon(second.host.open, SESSION_ID)  # waits for the first
            await second.host.open(other)
            is_there.set()
            while len(second.host.conversations) < 2:
                await anyio.sleep(0.01)


class LosingStore(MemoryStore):
    """Loses its database at the end of a turn: during the sync, or before the next event."""

    def __init__(self, first: MemoryStore, lost: "LosingSessions") -> None:
        super().__init__(blobs=first.blobs)
        self.share(first)
        self._first, self._sessions = first, lost

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        if self._sessions.loses == "before a model call" and b'"ModelAsked"' in lines[-1]:
            self._lose()
        await self._first.append(lines, expect=expect, epoch=epoch, head=head)

    async def keep(self) -> None:
        if self._sessions.loses == "at the end" and b'"TurnEnded"' in self.lines[-1]:
            self._lose()
            raise Disconnected("the database cannot be reached")
        await super().keep()

    def _lose(self) -> None:
        del self.lines[-1]
        self._sessions.loses = ""


class LosingSessions(MemorySessions):
    def __init__(self, loses: str) -> None:
        super().__init__()
        self.loses = loses

    def store(self, session: str) -> Store:
        store = super().store(session)
        assert isinstance(store, MemoryStore)
        return LosingStore(store, self)


@pytest.mark.parametrize("loses", ["at the end", "before a model call"])
async def test_a_worker_completes_a_turn_whose_events_its_database_lost(
    tmp_path: Path, loses: str
) -> None:
    workers = Workers(sessions := LosingSessions(loses), tmp_path)
    with anyio.fail_after(_LIMIT_SECONDS):
        async with workers.start("Yes.", "Yes.") as worker:
            await workers.say(worker.runner.give(1), "one")

    assert sessions.loses == ""
    assert (workers.count(Said), workers.count(TurnEnded)) == (1, 1)
    assert sessions.check(SESSION_ID).damages == ()


async def test_a_claim_whose_session_cannot_be_opened_ends_unfinished(
    tmp_path: Path,
) -> None:
    class Away(MemorySessions):
        def store(self, session: str) -> Store:
            raise Disconnected("the database cannot be reached")

    workers = Workers(Away(), tmp_path)
    with anyio.fail_after(_LIMIT_SECONDS):
        async with workers.start() as worker:
            claim = worker.runner.give(1)
            while not claim.unfinished:
                await anyio.sleep(0.01)


async def _ignore(_: WorkerClaim) -> None:
    pass
