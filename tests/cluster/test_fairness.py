"""People take turns: many sessions of one do not hold up the first of another."""

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest

from refold.client.nodes.database_orders import DatabaseOrders
from refold.client.order_sink import OrderResult
from refold.client.protocol import Queue
from refold.cluster.database import Database
from refold.cluster.session_runner import ProcrastinateRunner
from tests.cluster.servers import LoopbackServer

pytest.importorskip("temporalio", reason="refold[cluster] is not installed")
from refold.cluster.temporal_runner import TemporalRunner  # after the check

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
Runner = ProcrastinateRunner | TemporalRunner
MANY = 40


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["database", "temporal"])
def start(request: pytest.FixtureRequest, database: Database) -> Callable[[], Runner]:
    """A worker that has one session at a time."""
    if request.param == "database":
        return lambda: ProcrastinateRunner(database, beat_seconds=0.2, max_claims=1)
    temporal: LoopbackServer = request.getfixturevalue("temporal")

    def start_temporal() -> TemporalRunner:
        runner = TemporalRunner(database, temporal.address, beat_seconds=0.2)
        runner.max_claims = 1
        return runner

    return start_temporal


async def test_orders_of_one_person_do_not_wait_for_all_orders_of_another_person(
    database: Database, start: Callable[[], Runner]
) -> None:
    runner = start()
    by_temporal = isinstance(runner, TemporalRunner)
    orders = DatabaseOrders(database, runner.wake if by_temporal else None)

    async def order(person: str, number: int) -> None:
        session = f"20260101-0000{number:02}-{person}"
        await orders.put(session, Queue("go", client_key="k", by=person))
        if by_temporal:
            await runner.wake(session)

    for number in range(MANY):
        await order("busy", number)
    taken = list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run)
        async with aclosing(runner.claims()) as claims:
            with anyio.fail_after(100):
                async for claim in claims:
                    taken.append(claim.session[-4:])
                    await claim.wait_for_wake()
                    for placed in await orders.take(claim.session, claim.number):
                        await placed.settle(OrderResult(True))
                    if len(taken) == 5:
                        for number in range(3):
                            await order("rare", number)
                        await anyio.sleep(1)
                    await claim.end()
                    if len(taken) == MANY + 3:
                        break
        group.cancel_scope.cancel()

    places = [place for place, person in enumerate(taken) if person == "rare"]
    assert len(places) == 3
    assert places[2] < 5 + 10
