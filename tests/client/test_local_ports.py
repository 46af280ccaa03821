"""The ports of one process keep their contracts."""

from contextlib import aclosing

import anyio
import pytest

from refold.client.host_ports import LocalOrders, LocalRunner
from refold.testing import OrdersContract, RunnerContract


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def no_claim(_: str) -> int:
    return 0


class TestLocalOrders(OrdersContract):
    @pytest.fixture
    def orders(self) -> LocalOrders:
        return LocalOrders()


class TestLocalRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> LocalRunner:
        return LocalRunner(no_claim)


@pytest.mark.anyio
async def test_claim_numbers_continue_after_the_recorded_number_of_the_session() -> None:
    recorded = {"a": 7, "b": 0}

    async def read_claim(session: str) -> int:
        return recorded[session]

    runner, session_claims = LocalRunner(read_claim), list[tuple[str, int]]()
    for session in ("b", "a", "b", "a"):
        await runner.wake(session)
        async with aclosing(runner.claims()) as claims:
            claim = await anext(claims)
            await claim.wait_for_wake()
            session_claims.append((claim.session, claim.number))
            await claim.end()

    assert session_claims == [("b", 1), ("a", 8), ("b", 9), ("a", 10)]


@pytest.mark.anyio
@pytest.mark.parametrize("is_stopped_first", [True, False])
async def test_stop_ends_a_claim_that_its_cancelled_worker_has_not_taken(
    is_stopped_first: bool,
) -> None:
    reached = anyio.Event()

    async def read_claim(_: str) -> int:
        reached.set()
        await anyio.sleep_forever()
        return 0

    runner = LocalRunner(read_claim)
    await runner.wake("a")

    async def take() -> None:
        async with aclosing(runner.claims()) as claims:
            await anext(claims)

    with anyio.fail_after(10):
        async with (
            anyio.create_task_group() as stopping,
            anyio.create_task_group() as worker,
        ):
            worker.start_soon(take)
            await reached.wait()
            if is_stopped_first:
                stopping.start_soon(runner.stop, "a")
                await anyio.wait_all_tasks_blocked()
            worker.cancel_scope.cancel()
        await runner.stop("a")
