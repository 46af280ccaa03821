"""The contracts of `Orders`, `Runner` and `Bus`, as tests for other implementations.

    class TestMyOrders(OrdersContract):
        @pytest.fixture
        def orders(self): return MyOrders()

Workers that are killed or hang need tests of their own.
"""

from contextlib import aclosing

import anyio
import pytest
from anyio.abc import ObjectReceiveStream

from refold.client.host_ports import MAX_BUS_BYTES, Bus, Orders, Runner, SessionClaim
from refold.client.order_sink import OrderResult
from refold.client.protocol import Steer
from refold.errors import BadInput

_LIMIT_SECONDS = 10


@pytest.mark.anyio
class OrdersContract:
    """The contract of a queue of orders: a subclass provides the fixture `orders`."""

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
    """The contract of a runner: a subclass provides the fixture `runner`.

    To check that an event does not occur, a test waits for `moment_seconds`.
    """

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

    async def test_a_running_claim_gets_each_wake(self, runner: Runner) -> None:
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

    async def test_an_unfinished_claim_leads_to_another_claim(self, runner: Runner) -> None:
        await runner.wake("a")
        (first,) = await _next_claims(runner)
        await first.wait_for_wake()
        await first.end(unfinished=True)
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
        """Whether a claim arrives within a moment."""
        with anyio.move_on_after(self.moment_seconds):
            await _next_claims(runner)
            return True
        return False

    async def _is_woken(self, claim: SessionClaim) -> bool:
        """Whether the claim gets a wake within a moment."""
        with anyio.move_on_after(self.moment_seconds):
            await claim.wait_for_wake()
            return True
        return False


@pytest.mark.anyio
class BusContract:
    """The contract of a bus: a subclass provides the fixture `buses`.

    They are the running buses of a worker and of a web node.
    """

    @pytest.fixture
    def buses(self) -> tuple[Bus, Bus]:
        raise NotImplementedError

    async def test_documents_arrive_in_order_where_their_session_is_followed(
        self, buses: tuple[Bus, Bus]
    ) -> None:
        for sender, receiver in (buses, buses[::-1]):
            async with receiver.follow("a") as first, receiver.follow("a") as second:
                await _publish_until_received(sender, "a", first, second)
                await sender.publish("b", b'"of another session"')
                numbers = [b"%d" % n for n in range(200)]
                for number in numbers:
                    await sender.publish("a", number)

                for documents in (first, second):
                    assert [await _receive(documents) for _ in numbers] == numbers

    async def test_the_largest_document_arrives_whole(self, buses: tuple[Bus, Bus]) -> None:
        document = b'"' + "é".encode() * (MAX_BUS_BYTES // 2 - 1) + b'"'
        worker, web = buses
        async with web.follow("a") as documents:
            await _publish_until_received(worker, "a", documents)
            await worker.publish("a", document)

            assert await _receive(documents) == document

    async def test_a_follower_that_does_not_read_delays_no_other(
        self, buses: tuple[Bus, Bus]
    ) -> None:
        worker, web = buses
        async with web.follow("a") as documents:
            async with web.follow("a") as silent:
                await _publish_until_received(worker, "a", documents, silent)
                for n in range(1_100):
                    await worker.publish("a", b"%d" % n)
                    assert await _receive(documents) == b"%d" % n
            await worker.publish("a", b'"after it has left"')

            assert await _receive(documents) == b'"after it has left"'


async def _publish_until_received(
    sender: Bus, session: str, *receivers: ObjectReceiveStream[bytes]
) -> None:
    """Publish messages until all receivers have received a message.

    Messages that are sent before a receiver connects are lost.
    """
    with anyio.fail_after(_LIMIT_SECONDS):
        for n, documents in enumerate(receivers):
            mark = b'"connected %d"' % n
            while True:
                await sender.publish(session, mark)
                with anyio.move_on_after(0.1):
                    while await documents.receive() != mark:
                        pass
                    break
    await sender.publish(session, b'"begin"')
    for documents in receivers:
        while await _receive(documents) != b'"begin"':
            pass


async def _receive(documents: ObjectReceiveStream[bytes]) -> bytes:
    with anyio.fail_after(_LIMIT_SECONDS):
        return await documents.receive()


async def _next_claims(runner: Runner, count: int = 1) -> list[SessionClaim]:
    """Return the next `count` claims of the runner."""
    result = list[SessionClaim]()
    with anyio.fail_after(_LIMIT_SECONDS):
        async with aclosing(runner.claims()) as claims:
            async for claim in claims:
                result.append(claim)
                if len(result) == count:
                    break
    return result
