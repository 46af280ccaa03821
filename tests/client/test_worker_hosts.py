"""Workers that share sessions: a session is open in a worker for as long as that has a claim on it."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest
from anyio.abc import ObjectReceiveStream
from msgspec import Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.host import HostPaths
from refold.client.host_ports import LocalOrders
from refold.client.launch import Launch
from refold.client.new_conversation import NewConversation
from refold.client.nodes.services import Services
from refold.client.nodes.worker_host import WorkerHost
from refold.client.protocol import Queue
from refold.cluster.claims import WorkerClaim, WorkerClaims
from refold.cluster.database import Database
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.errors import Disconnected
from refold.journal.events.kinds import Entry, Said, TurnEnded
from refold.journal.session_index import SessionIndex
from refold.journal.store.port import MemoryStore, Store
from refold.testing import MemorySessions, ScriptedProvider

pytestmark = pytest.mark.anyio
SESSION_ID = "20260101-000000-aaaa"
_LIMIT_SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Runner:
    """A runner whose claims the test gives."""

    def __init__(self) -> None:
        self._claims = WorkerClaims()

    def give(self, number: int) -> WorkerClaim:
        claim = WorkerClaim(SESSION_ID, number, acknowledge=_ignore, release=self._release)
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
    """A bus without another side."""

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
    """The orders of one session, which the first claim begins."""

    async def read_start(self, session: str) -> tuple[bytes, None]:
        return msgspec.json.encode(NewConversation()), None


class OwnServices(Services, frozen=True, kw_only=True):
    """What workers share, without a server."""

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
    async def start(self, *replies: str) -> AsyncGenerator[Worker]:
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
            services, self.home, HostPaths(self._directory, state, state), launch_at
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


async def test_a_worker_that_gets_a_session_back_has_what_others_wrote_meanwhile(
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

    said = [e.event.text for e in workers.entries if isinstance(e.event, Said)]
    assert said == ["one", "two", "three"]
    assert [entry.epoch for entry in workers.entries if isinstance(entry.event, Said)] == [
        1, 2, 3,
    ]  # fmt: skip


class LosingStore(MemoryStore):
    """Loses the end of a turn with its database: while that is synced, or before the next event."""

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
async def test_a_worker_does_again_what_its_database_has_lost(
    tmp_path: Path, loses: str
) -> None:
    workers = Workers(sessions := LosingSessions(loses), tmp_path)
    with anyio.fail_after(_LIMIT_SECONDS):
        async with workers.start("Yes.", "Yes.") as worker:
            await workers.say(worker.runner.give(1), "one")

    assert sessions.loses == ""
    assert (workers.count(Said), workers.count(TurnEnded)) == (1, 1)
    assert sessions.check(SESSION_ID).damages == ()


async def test_a_session_that_could_not_be_opened_is_left_to_another_claim(
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
