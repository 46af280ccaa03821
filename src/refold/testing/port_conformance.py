"""The contracts of `Orders` and `Runner`, as tests for other implementations.

    class TestMyOrders(OrdersContract):
        @pytest.fixture
        def orders(self): return MyOrders()

What happens when a worker dies or hangs needs tests of its own.
"""

from contextlib import aclosing

import anyio
import pytest

from refold.client.host_ports import Orders, Runner, SessionClaim
from refold.client.order_sink import OrderResult
from refold.client.protocol import Steer
from refold.errors import BadInput

_LIMIT_SECONDS = 10


@pytest.mark.anyio
class OrdersContract:
    @pytest.fixture
    def orders(self) -> Orders:
        raise NotImplementedError

    async def test_orders_are_taken_once_in_the_order_they_came(
        self, orders: Orders
    ) -> None:
        for text in ("one", "two"):
            await orders.put("a", Steer(text, client_key=text))
        await orders.put("b", Steer("three", client_key="three"))

        taken = [item.order for item in await orders.take("a")]

        assert taken == [Steer("one", client_key="one"), Steer("two", client_key="two")]
        assert list(await orders.take("a")) == []
        assert [item.order for item in await orders.take("b")] == [
            Steer("three", client_key="three")
        ]

    async def test_whoever_placed_an_order_gets_its_result(self, orders: Orders) -> None:
        placed = await orders.put("a", Steer("one"))
        (taken,) = await orders.take("a")
        await taken.settle(OrderResult(True, copy="c"))
        await taken.settle(BadInput("too late"))

        assert await placed.result() == OrderResult(True, copy="c")

    async def test_whoever_placed_an_order_gets_its_error(self, orders: Orders) -> None:
        placed = await orders.put("a", Steer("one"))
        (taken,) = await orders.take("a")
        await taken.settle(BadInput("it contains no text"))

        with pytest.raises(BadInput, match="it contains no text"):
            await placed.result()

    async def test_a_client_key_is_queued_once_in_a_session(self, orders: Orders) -> None:
        first = await orders.put("a", Steer("one", client_key="k"))
        second = await orders.put("a", Steer("one", client_key="k"))
        await orders.put("b", Steer("one", client_key="k"))
        (taken,) = await orders.take("a")
        late = await orders.put("a", Steer("one", client_key="k"))
        await taken.settle(OrderResult(True))

        results = [await order.result() for order in (first, second, late)]

        assert results == [OrderResult(True)] * 3
        assert list(await orders.take("a")) == []
        assert len(await orders.take("b")) == 1

    async def test_orders_without_a_key_are_all_queued(self, orders: Orders) -> None:
        for _ in range(2):
            await orders.put("a", Steer("one"))

        assert len(await orders.take("a")) == 2


@pytest.mark.anyio
class RunnerContract:
    """`moment_seconds` is how long to wait for what must not come."""

    moment_seconds = 0.05

    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError

    async def test_a_session_is_claimed_once_however_often_it_is_woken(
        self, runner: Runner
    ) -> None:
        for session in ("a", "a", "b"):
            await runner.wake(session)

        claims = await _next_claims(runner, 2)

        assert sorted(claim.session for claim in claims) == ["a", "b"]
        assert not await self._has_claim(runner)

    async def test_whoever_has_a_session_hears_that_it_was_woken(
        self, runner: Runner
    ) -> None:
        await runner.wake("a")
        (claim,) = await _next_claims(runner)
        with anyio.fail_after(_LIMIT_SECONDS):
            await claim.wait_for_wake()  # by the first
            assert not await self._is_woken(claim)
            await runner.wake("a")
            await claim.wait_for_wake()

        assert not await self._has_claim(runner)

    async def test_wake_while_a_claim_ends_leads_to_another_claim(
        self, runner: Runner
    ) -> None:
        await runner.wake("a")
        (first,) = await _next_claims(runner)
        await first.wait_for_wake()
        await runner.wake("a")
        await first.end()
        (second,) = await _next_claims(runner)
        await second.wait_for_wake()
        await second.end()

        assert not await self._has_claim(runner)
        assert second.number > first.number

    async def test_a_later_claim_has_a_higher_number(self, runner: Runner) -> None:
        numbers = list[int]()
        for _ in range(3):
            await runner.wake("a")
            (claim,) = await _next_claims(runner)
            await claim.wait_for_wake()
            await claim.end()
            numbers.append(claim.number)

        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0

    async def test_stop_cancels_the_claim_and_waits_for_its_end(
        self, runner: Runner
    ) -> None:
        await runner.wake("a")
        (claim,) = await _next_claims(runner)
        steps = list[str]()

        async def stop() -> None:
            await runner.stop("a", "the server was stopped")
            steps.append("stopped")

        with anyio.fail_after(_LIMIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(stop)
                steps.append(await claim.wait_for_cancel())
                await anyio.sleep(self.moment_seconds)
                steps.append("ending")
                await claim.end()

        assert steps == ["the server was stopped", "ending", "stopped"]

    async def test_a_stopped_session_is_not_claimed_until_it_is_woken_again(
        self, runner: Runner
    ) -> None:
        await runner.wake("a")
        (claim,) = await _next_claims(runner)
        await claim.wait_for_wake()
        async with anyio.create_task_group() as group:
            group.start_soon(runner.stop, "a")
            assert await claim.wait_for_cancel() == ""
            await claim.end()

        assert not await self._has_claim(runner)
        await runner.wake("a")
        assert [each.session for each in await _next_claims(runner)] == ["a"]

    async def test_a_session_that_does_not_run_is_stopped_at_once(
        self, runner: Runner
    ) -> None:
        with anyio.fail_after(_LIMIT_SECONDS):
            await runner.stop("a", "no reason")

    async def _has_claim(self, runner: Runner) -> bool:
        with anyio.move_on_after(self.moment_seconds):
            await _next_claims(runner)
            return True
        return False

    async def _is_woken(self, claim: SessionClaim) -> bool:
        with anyio.move_on_after(self.moment_seconds):
            await claim.wait_for_wake()
            return True
        return False


async def _next_claims(runner: Runner, count: int = 1) -> list[SessionClaim]:
    """Wait for the next claims."""
    result = list[SessionClaim]()
    with anyio.fail_after(_LIMIT_SECONDS):
        async with aclosing(runner.claims()) as claims:
            async for claim in claims:
                result.append(claim)
                if len(result) == count:
                    break
    return result
