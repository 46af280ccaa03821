"""Temporal gives sessions to workers: the contract of `Runner`, and what happens if a worker hangs."""

import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress

import anyio
import pytest

from refold.client.nodes.database_orders import DatabaseOrders
from refold.client.order_sink import OrderResult
from refold.client.protocol import Queue
from refold.cluster.claims import WorkerClaim
from refold.cluster.database import Database
from refold.errors import Disconnected
from refold.testing import RunnerContract
from tests.cluster.limits import (
    check_a_limit_holds_for_all_workers_of_a_tenant_and_for_no_other,
)
from tests.cluster.postgresql import Server
from tests.cluster.servers import LoopbackServer, temporal_server

pytest.importorskip("temporalio", reason="refold[cluster] is not installed")
from temporalio.client import Client

from refold.cluster.temporal_runner import TemporalRunner  # after the check

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
ONE = "20260101-000000-aaaa"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def running(
    database: Database,
    temporal: LoopbackServer,
    beat_seconds: float = 0.2,
    on_full: Callable[[], None] = lambda: None,
) -> AsyncGenerator[TemporalRunner]:
    runner = TemporalRunner(
        database,
        temporal.address,
        beat_seconds=beat_seconds,
        dead_seconds=1,
        forgotten_seconds=1,
    )
    runner.on_full = on_full
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run)
        yield runner
        group.cancel_scope.cancel()


@pytest.fixture
async def worker(
    database: Database, temporal: LoopbackServer
) -> AsyncGenerator[TemporalRunner]:
    async with running(database, temporal) as started:
        yield started


class TestTemporalRunner(RunnerContract):
    moment_seconds = 0.5

    @pytest.fixture
    async def runner(self, worker: TemporalRunner) -> TemporalRunner:
        return worker


async def test_a_session_of_a_worker_without_a_heartbeat_is_given_to_another_worker(
    database: Database, temporal: LoopbackServer
) -> None:
    async with (
        running(database, temporal, beat_seconds=1000) as hung,
        anyio.create_task_group() as group,
    ):
        await hung.wake(ONE)
        first = await take(hung)
        group.start_soon(hung.drain)  # else it might get the session again
        async with running(database, temporal) as worker:
            second = await take(worker)
            await first.end()  # too late: it has lost it

            assert (second.session, second.number > first.number) == (ONE, True)
            with anyio.move_on_after(0.3) as patience:
                async with anyio.create_task_group() as stopping:
                    stopping.start_soon(worker.stop, ONE)
                    await second.wait_for_cancel()
                    await anyio.sleep_forever()
            assert patience.cancelled_caught  # as the second has not ended
            await second.end()
            await worker.stop(ONE)


async def test_the_session_limit_of_a_tenant_holds_for_all_its_workers_and_no_other_tenant(
    server: Server, database: Database, temporal: LoopbackServer
) -> None:
    other = Database(server.url, f"{database.tenant}-other")

    def start(
        own: Database, on_full: Callable[[], None]
    ) -> AbstractAsyncContextManager[TemporalRunner]:
        return running(own, temporal, on_full=on_full)

    await check_a_limit_holds_for_all_workers_of_a_tenant_and_for_no_other(
        start, database, other, waiting=12
    )
    await anyio.to_thread.run_sync(other.close)


async def test_drain_waits_for_open_claims_and_leaves_waiting_sessions_to_other_workers(
    database: Database, temporal: LoopbackServer, worker: TemporalRunner
) -> None:
    await worker.wake(ONE)
    claim = await take(worker)
    await claim.wait_for_wake()
    async with anyio.create_task_group() as group:
        group.start_soon(worker.drain)
        assert await claim.wait_for_cancel() == ""
        await worker.wake(ONE)
        await claim.end()
    async with running(database, temporal) as other:
        again = await take(other)

        assert (again.session, again.number > claim.number) == (ONE, True)
        await again.end()


async def test_a_claim_is_woken_by_the_database_while_temporal_is_down(
    database: Database,
) -> None:
    with temporal_server() as own:
        async with running(database, own) as worker:
            await worker.wake(ONE)
            claim = await take(worker)
            await claim.wait_for_wake()
            own.kill()
            with pytest.raises(Disconnected, match=r"Temporal at 127\.0\.0\.1:"):
                await worker.wake(ONE)
            await claim.wait_for_wake()  # by the database
            own.start()
            await wake_when_ready(worker)
            await claim.wait_for_wake()
            await claim.end()
            await worker.stop(ONE)


async def test_an_outage_of_temporal_is_reported_once_and_its_end_once(
    database: Database,
) -> None:
    lines = list[str]()
    with temporal_server() as own:
        own.kill()
        runner = TemporalRunner(
            database, own.address, beat_seconds=0.2, report=lines.append
        )
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            for n in range(2):
                await wait_for_lines(lines, 2 * n + 1)
                await anyio.sleep(1.5)  # it tries to connect again and again meanwhile
                own.start()
                await wait_for_lines(lines, 2 * n + 2)
                await wake_when_ready(runner)
                await (await take(runner)).end()
                own.kill()
            group.cancel_scope.cancel()
    place = f"Temporal at {own.address}"

    assert lines[1::2][:2] == [f"{place} can be reached again"] * 2
    assert all(line.startswith(f"{place} cannot be reached: ") for line in lines[::2])
    assert len(lines) in (4, 5)  # the fifth is that of the last end


async def test_an_order_whose_web_node_died_before_it_woke_the_session_is_taken(
    database: Database, worker: TemporalRunner
) -> None:
    orders = DatabaseOrders(database, worker.wake)  # it wakes while a result is awaited
    await orders.put(ONE, order := Queue("do this", client_key="k"))

    claim = await take(worker)

    (placed,) = await orders.take(ONE, claim.number)
    assert (claim.session, placed.order) == (ONE, order)
    await placed.settle(OrderResult(True))
    await claim.end()


async def test_the_temporal_history_of_a_session_contains_only_ids(
    database: Database, worker: TemporalRunner, temporal: LoopbackServer
) -> None:
    await worker.wake(ONE)
    claim = await take(worker)
    await claim.wait_for_wake()
    await worker.wake(ONE)
    await claim.wait_for_wake()
    await claim.end()
    await worker.stop(ONE)
    client = await Client.connect(temporal.address)
    handle = client.get_workflow_handle(f"{database.tenant}/{ONE}")

    history = (await handle.fetch_history()).to_json()

    texts = [b64decode(data).decode() for data in re.findall('"data": *"([^"]*)"', history)]
    wake = re.compile('"[0-9a-f]{12}"')
    others = {text for text in texts if not wake.fullmatch(text)}
    assert others <= {f'"{ONE}"', "1", "[]"} | {t for t in others if wake.search(t)}


async def wait_for_lines(lines: list[str], count: int) -> None:
    with anyio.fail_after(60):
        while len(lines) < count:
            await anyio.sleep(0.05)


async def wake_when_ready(runner: TemporalRunner) -> None:
    """Temporal takes requests some time after it listens."""
    while True:
        with suppress(Disconnected):
            return await runner.wake(ONE)
        await anyio.sleep(0.1)


async def take(runner: TemporalRunner) -> WorkerClaim:
    with anyio.fail_after(30):
        async with aclosing(runner.claims()) as claims:
            return await anext(claims)
