"""Orders and claims in PostgreSQL keep the contracts of their ports."""

import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.client.host_ports import ClosedHere
from refold.client.nodes.database_orders import DatabaseOrders
from refold.client.order_sink import AlreadyAnswered, OrderResult
from refold.client.protocol import ApprovalResponse, Fork, Queue
from refold.cluster.claims import WorkerClaim
from refold.cluster.database import Database
from refold.cluster.notify_bus import NotifyBus
from refold.cluster.session_runner import ProcrastinateRunner
from refold.errors import BadInput, Disconnected, Fenced, JournalError
from refold.testing import BusContract, OrdersContract, RunnerContract
from tests.cluster.limits import (
    check_a_limit_holds_for_all_workers_of_a_tenant_and_for_no_other,
)
from tests.cluster.postgresql import Server

pytestmark = pytest.mark.peer
ONE = "20260101-000000-aaaa"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def queue(database: Database) -> AsyncGenerator[DatabaseOrders]:
    placed = DatabaseOrders(database)
    async with anyio.create_task_group() as group:
        group.start_soon(placed.run)
        yield placed
        group.cancel_scope.cancel()


@pytest.fixture
async def worker(database: Database) -> AsyncGenerator[ProcrastinateRunner]:
    started = ProcrastinateRunner(database, beat_seconds=0.1, dead_seconds=0.5)
    async with anyio.create_task_group() as group:
        group.start_soon(started.run)
        yield started
        group.cancel_scope.cancel()


class TestDatabaseOrders(OrdersContract):
    @pytest.fixture
    async def orders(self, queue: DatabaseOrders) -> DatabaseOrders:
        return queue


class TestProcrastinateRunner(RunnerContract):
    moment_seconds = 0.3

    @pytest.fixture
    async def runner(self, worker: ProcrastinateRunner) -> ProcrastinateRunner:
        return worker


class TestNotifyBus(BusContract):
    @pytest.fixture
    async def buses(
        self, database: Database
    ) -> AsyncGenerator[tuple[NotifyBus, NotifyBus]]:
        worker, web = NotifyBus(database), NotifyBus(database)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            group.start_soon(web.run)
            yield worker, web
            group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_next_claim_takes_a_message_of_a_dead_worker_and_refuses_its_fork(
    queue: DatabaseOrders,
) -> None:
    message = await queue.put(ONE, Queue("Paint it.", client_key="said"))
    forked = await queue.put(ONE, Fork(client_key="forked"))
    dead_claim, next_claim = 7, 8
    assert len(await queue.take(ONE, dead_claim)) == 2

    (again,) = await queue.take(ONE, next_claim)
    await again.settle(OrderResult(True))

    assert again.order == Queue("Paint it.", client_key="said")
    assert await message.result() == OrderResult(True)
    with pytest.raises(BadInput, match="give the order again if it was not"):
        await forked.result()


@pytest.mark.anyio
async def test_an_answer_that_a_worker_recorded_before_it_died_is_acknowledged(
    queue: DatabaseOrders,
) -> None:
    error = AlreadyAnswered("no call 'c' waits for an answer any more")
    yes = ApprovalResponse("c", allowed=True, hash="h", client_key="yes")
    recorded = await queue.put(ONE, yes)
    late = await queue.put(ONE, replace(yes, client_key="late"))
    (order, _) = await queue.take(ONE, 7)
    await order.settle(ClosedHere("the worker ends"))
    await queue.put("another", yes)

    for placed in await queue.take(ONE, 8):
        await placed.settle(error)
    for placed in await queue.take("another", 8):
        await placed.settle(error)

    assert await recorded.result() == await late.result() == OrderResult(False)
    with pytest.raises(AlreadyAnswered, match="no call 'c' waits"):
        await (await queue.put("another", yes)).result()


@pytest.mark.anyio
async def test_an_order_of_a_newer_version_is_refused_and_the_others_are_taken(
    queue: DatabaseOrders, server: Server, tenant: str
) -> None:
    """A web node of a newer version has placed it, and the worker is older."""
    newer = await queue.put(ONE, Queue("newer", client_key="k-1"))
    await queue.put(ONE, Queue("known", client_key="k-2"))
    body = '{"type": "play_music", "client_key": "k-1"}'
    server.execute(
        f"update refold.placed_order set body = '{body}'::bytea "
        f"where tenant = '{tenant}' and key = 'k-1'"
    )

    (known,) = await queue.take(ONE, 7)

    assert known.order == Queue("known", client_key="k-2")
    with pytest.raises(BadInput, match=r"does not know the order: restart.*play_music"):
        await newer.result()


@pytest.mark.anyio
async def test_orders_are_taken_again_by_a_claim_that_lost_the_answer_of_the_database(
    queue: DatabaseOrders, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.put(ONE, Queue("Paint it.", client_key="said"))
    await queue.put(ONE, Fork(client_key="forked"))
    run = database.run

    async def lose_answer(work: Any) -> Any:
        await run(work)
        raise Disconnected("the database crashed after it had committed")

    monkeypatch.setattr(database, "run", lose_answer)
    with pytest.raises(Disconnected):
        await queue.take(ONE, 7)
    monkeypatch.undo()
    first, _ = await queue.take(ONE, 7)

    assert await queue.take(ONE, 7) == []
    await first.settle(OrderResult(True))
    assert await queue.take(ONE, 7) == []


@pytest.mark.anyio
async def test_an_order_is_refused_again_by_the_next_claim_if_the_first_refusal_was_not_stored(
    queue: DatabaseOrders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.put(ONE, Queue("Paint it.", client_key="said"))
    forked = await queue.put(ONE, Fork(client_key="forked"))
    await queue.take(ONE, 7)

    async def lose_connection(*_: object) -> None:
        raise Disconnected("the database is away")

    monkeypatch.setattr(queue, "settle", lose_connection)
    (message,) = await queue.take(ONE, 8)
    monkeypatch.undo()

    assert message.order == Queue("Paint it.", client_key="said")
    assert await queue.take(ONE, 8) == []
    await queue.take(ONE, 9)
    with pytest.raises(BadInput, match="give the order again if it was not"):
        await forked.result()


@pytest.mark.anyio
async def test_an_order_that_a_fenced_worker_took_is_taken_by_its_successor(
    queue: DatabaseOrders, database: Database
) -> None:
    await queue.put(ONE, Queue("Paint it.", client_key="said"))
    (order,) = await queue.take(ONE, 7)
    await order.settle(Fenced("a later writer has it"))
    lease = "insert into refold.journal(session, epoch, claim) values($1, 2, 8)"
    await database.run(lambda db: db.execute(lease, ONE))

    assert await queue.take(ONE, 7) == []
    assert len(await queue.take(ONE, 8)) == 1


@pytest.mark.anyio
async def test_a_session_of_a_worker_without_a_heartbeat_is_given_to_another_worker(
    worker: ProcrastinateRunner, database: Database
) -> None:
    hung = ProcrastinateRunner(database, beat_seconds=1000)
    async with anyio.create_task_group() as group:
        group.start_soon(hung.run)
        while not (first := await _claim(hung, worker, ONE)):
            pass
        second = await _next(worker)
        await first.end()  # too late: it has lost it

        assert (second.session, second.number > first.number) == (ONE, True)
        query = "select refold.is_claimed($1)"
        assert await database.run(lambda db: db.fetchval(query, ONE))
        await second.end()
        assert not await database.run(lambda db: db.fetchval(query, ONE))
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_drain_waits_for_open_claims_and_leaves_waiting_sessions_to_other_workers(
    worker: ProcrastinateRunner, database: Database
) -> None:
    await worker.wake(ONE)
    claim = await _next(worker)
    await claim.wait_for_wake()
    async with anyio.create_task_group() as group:
        group.start_soon(worker.drain)
        assert await claim.wait_for_cancel() == ""
        await worker.wake(ONE)
        await claim.end()

    waiting = "select count(*) from refold.procrastinate_jobs where queueing_lock = $1"
    lock = database.lock_name(ONE)
    assert await database.run(lambda db: db.fetchval(waiting, lock)) == 1


@pytest.mark.anyio
async def test_the_session_limit_of_a_tenant_holds_for_all_its_workers_and_no_other_tenant(
    server: Server, database: Database
) -> None:
    other = Database(server.url, f"{database.tenant}-other")

    @asynccontextmanager
    async def start(
        own: Database, on_full: Callable[[], None]
    ) -> AsyncGenerator[ProcrastinateRunner]:
        runner = ProcrastinateRunner(own, on_full=on_full)
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            yield runner
            group.cancel_scope.cancel()

    await check_a_limit_holds_for_all_workers_of_a_tenant_and_for_no_other(
        start, database, other, waiting=50
    )
    await anyio.to_thread.run_sync(other.close)


@pytest.mark.anyio
async def test_a_claim_has_a_higher_number_than_every_recorded_claim_of_its_session(
    worker: ProcrastinateRunner, database: Database
) -> None:
    lease = "insert into refold.journal(session, epoch, claim) values($1, 1, $2)"
    # The second is a time in microseconds, as of a service that had Temporal.
    for session, recorded in (("a", 1_000), ("b", 1_800_000_000_000_000)):
        await database.run(lambda db, row=(session, recorded): db.execute(lease, *row))
        await worker.wake(session)

        claim = await _next(worker)

        assert claim.number > recorded
        await claim.end()


@pytest.mark.anyio
async def test_the_role_of_web_nodes_places_orders_and_takes_none(
    server: Server, tenant: str, queue: DatabaseOrders, database: Database
) -> None:
    server.execute(f'create role "web-{tenant}" login in role refold_web')
    web = Database(server.url_of(f"web-{tenant}"), tenant)
    other = Database(server.url_of(f"web-{tenant}"), "another")
    placed = await DatabaseOrders(web).put(ONE, Queue("A secret.", client_key="k"))

    for forbidden in (
        DatabaseOrders(web).take(ONE, 1),
        web.run(lambda db: db.execute("select refold.fetch_claim(1, array[]::bigint[])")),
        web.run(lambda db: db.fetch("select * from refold.procrastinate_jobs")),
        web.run(lambda db: db.execute("update refold.placed_order set outcome = null")),
    ):
        with pytest.raises(JournalError, match="permission denied"):
            await forbidden
    count_query = "select count(*) from refold.placed_order"
    assert await other.run(lambda db: db.fetchval(count_query)) == 0
    jobs = "select args::text from refold.procrastinate_jobs where queueing_lock = $1"
    lock = database.lock_name(ONE)
    job = json.loads(await database.run(lambda db: db.fetchval(jobs, lock)))
    assert job == {"session": ONE, "by": hashlib.md5(b"").hexdigest()}
    (order,) = await queue.take(ONE, 1)
    await order.settle(OrderResult(True))
    assert await placed.result() == OrderResult(True)
    web.close()
    other.close()


async def _next(runner: ProcrastinateRunner) -> WorkerClaim:
    with anyio.fail_after(30):
        async with aclosing(runner.claims()) as claims:
            return await anext(claims)


async def _claim(
    wanted: ProcrastinateRunner, other: ProcrastinateRunner, session: str
) -> WorkerClaim | None:
    """Return a claim of `wanted`. None if `other` was faster, which gives its claim back."""
    await wanted.wake(session)
    result: WorkerClaim | None = None
    async with anyio.create_task_group() as group:

        async def take(runner: ProcrastinateRunner) -> None:
            nonlocal result
            claim = await _next(runner)
            if runner is wanted:
                result = claim
            else:
                await claim.wait_for_wake()
                await claim.end()
            group.cancel_scope.cancel()

        group.start_soon(take, wanted)
        group.start_soon(take, other)
    return result


@pytest.mark.anyio
async def test_an_outage_of_the_database_is_reported_once_and_its_end_once(
    server: Server, database: Database
) -> None:
    lines = list[str]()
    database.outage.report = lines.append
    await database.run(lambda db: db.execute("select 1"))

    async def ask() -> None:
        await database.run(lambda db: db.execute("select pg_sleep(1)"))

    for _ in range(2):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
            await anyio.sleep(0.1)
            server.crash()

    assert len(lines) == 4
    assert all(line.startswith(f"{database.place} cannot be") for line in lines[::2])
    assert lines[1::2] == [f"{database.place} can be reached again"] * 2
