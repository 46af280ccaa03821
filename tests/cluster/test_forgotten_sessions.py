"""A turn that its worker left open is continued by another one, whatever became of the queue."""

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from refold.cluster.database import Database
from refold.cluster.session_runner import ProcrastinateRunner
from refold.cluster.sessions import PostgreSQLSessions
from refold.cluster.store import PostgreSQLStore
from refold.journal.events.kinds import Said, SessionStarted, TurnEnded, TurnStarted
from refold.session.recorder import Recorder
from refold.testing.wire_server import wire_server
from tests.cluster.nodes import Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import LoopbackServer, temporal_server

pytest.importorskip("temporalio", reason="refold[cluster] is not installed")
from refold.cluster.temporal_runner import TemporalRunner  # after the check

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
LEFT, HELD, ENDED, MOVED = (f"20260101-000000-{name}" for name in ("left", "held", "endd", "movd"))  # fmt: skip
Runner = ProcrastinateRunner | TemporalRunner


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["database", "temporal"])
def start(request: pytest.FixtureRequest, database: Database) -> Callable[[], Runner]:
    seconds: Any = {"beat_seconds": 0.2, "dead_seconds": 1, "forgotten_seconds": 1}
    if request.param == "database":
        return lambda: ProcrastinateRunner(database, **seconds)
    temporal: LoopbackServer = request.getfixturevalue("temporal")
    return lambda: TemporalRunner(database, temporal.address, **seconds)


@asynccontextmanager
async def session(database: Database, id_: str, claim: int) -> AsyncGenerator[Recorder]:
    """Yield a session that a process has open, with an open turn."""
    record = Recorder(PostgreSQLStore(database, id_))
    record.claim = claim
    await record.open()
    await record(SessionStarted("/"), Said("go"), TurnStarted(2), kept=True)
    try:
        yield record
    finally:
        await record.close()


async def test_only_a_session_whose_turn_a_worker_left_open_is_claimed_again(
    database: Database, start: Callable[[], Runner]
) -> None:
    async with session(database, LEFT, 5):
        pass
    async with session(database, MOVED, 0):  # from a terminal, where a person has left it
        pass
    async with session(database, ENDED, 5) as ended:
        await ended(TurnEnded("answered"), kept=True)
    claimed = list[str]()
    async with session(database, HELD, 5), anyio.create_task_group() as group:
        runner = start()
        group.start_soon(runner.run)
        async with aclosing(runner.claims()) as claims:
            with anyio.fail_after(30):
                claim = await anext(claims)
                claimed.append(claim.session)
                await claim.wait_for_wake()
                await claim.end()  # it cannot be continued, and is not tried at once
            with anyio.move_on_after(3):
                claimed.append((await anext(claims)).session)
        group.cancel_scope.cancel()

    assert claimed == [LEFT]


async def test_a_turn_continues_although_its_worker_and_the_state_of_temporal_are_lost(
    server: Server, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    async with wire_server(model_of(effects, seconds=5)) as model:
        with temporal_server() as temporal:
            servers = Servers(server.url, model.url, temporal=temporal.address)
            async with nodes(tmp_path, servers, workers=2, web_nodes=1) as started:
                page = Page(started, random.Random(1))
                await page.begin()
                async with page.connect("?after=0") as socket:
                    order = {"type": "user_message", "text": "do key-0", "client_key": "k"}
                    await socket.send(json.dumps(order))
                    while not effects.exists():  # the order was settled before that
                        await anyio.sleep(0.05)
                    holder = await to_thread.run_sync(sessions.writer, page.id)
                    assert holder is not None
                    temporal.forget()
                    for worker in started.workers.values():
                        if worker.pid == holder.pid:
                            worker.kill()
                    with anyio.fail_after(100):
                        while json.loads(await socket.recv())["type"] != "result":
                            pass
    entries, _ = await to_thread.run_sync(sessions.entries, page.id)
    assert isinstance(entries[-1].event, TurnEnded)
    assert effects.read_text() == "key-0\n"
    await to_thread.run_sync(database.close)
