"""The interfaces between a host, which places orders and shows sessions, and a worker.

`Orders` is a queue of orders for each session. `Runner` decides which worker runs a
session, and when. A host places an order, wakes the session and waits for the result. A
worker gets a claim on the session, carries its orders out, and runs turns until nothing is
left to do.

`LocalOrders` and `LocalRunner` implement both within one process. `host` and
`session_worker` use them; `refold.testing.port_conformance` tests what every implementation
must do.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
from anyio.abc import ObjectReceiveStream

from refold.client.order_sink import OrderResult
from refold.client.protocol import Order
from refold.errors import BadInput, RefoldError

MAX_BUS_BYTES = 7_500  # a notification of PostgreSQL has room for less than 8,000


class PlacedOrder(Protocol):
    """An order in the queue of its session."""

    @property
    def order(self) -> Order:
        """The order, as a worker carries it out."""
        ...

    async def result(self) -> OrderResult:
        """Wait until the order is carried out. Raises the error with which it was settled."""
        ...

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        """Record the result or the error of the order. Only the first call has an effect.

        After the error `ClosedHere` another claim may still carry the order out.
        """
        ...


class Orders(Protocol):
    """The orders that wait for a worker, in a queue for each session."""

    async def put(self, session: str, order: Order) -> PlacedOrder:
        """Queue an order, and return it.

        If an unsettled order has the same client key, return the earlier order.
        """
        ...

    async def take(self, session: str, claim: int = 0) -> Sequence[PlacedOrder]:
        """Take the waiting orders of a session under this claim, oldest first.

        No order is taken twice, with one exception: if the queue outlives its workers, a
        later claim takes the orders that an earlier claim did not settle.
        """
        ...


class ClosedHere(BadInput):
    """The session was closed in this process before the order was carried out."""


class SessionClaim(Protocol):
    """The right to run a session. Only one worker has it at a time.

    `number` is higher than the number of any earlier claim on this session. The worker
    leases the session's store under this number.
    """

    @property
    def session(self) -> str:
        """The id of the session."""
        ...

    @property
    def number(self) -> int:
        """The number of the claim, higher than that of any earlier claim on the session."""
        ...

    async def wait_for_wake(self) -> None:
        """Wait until the session is woken. Return at once if it was woken since the last
        return.
        """
        ...

    async def wait_for_cancel(self) -> str:
        """Wait until the claim is cancelled, and return the reason.

        "" means that what runs may finish.
        """
        ...

    async def end(self, *, unfinished: bool = False) -> None:
        """Release the claim.

        If the claim is `unfinished`, or if the session was woken meanwhile, a new claim
        follows.
        """
        ...


class Runner(Protocol):
    """Decides which worker runs a session, and when."""

    async def wake(self, session: str) -> None:
        """Notify the worker that has the claim on the session.

        If no worker has it, give the claim to a worker.
        """
        ...

    async def stop(self, session: str, reason: str = "") -> None:
        """Cancel the claim on the session, if there is one, and wait for its end."""
        ...

    def claims(self) -> AsyncGenerator[SessionClaim]:
        """Yield the claims for this worker, as they are given."""
        ...


class Bus(Protocol):
    """Carries live documents of sessions between workers and web nodes; it may lose documents.

    For a worker the other side are the web nodes, and for a web node the workers.
    """

    async def publish(self, session: str, document: bytes) -> None:
        """Send a document of at most `MAX_BUS_BYTES` to those on the other side that follow
        the session.
        """
        ...

    def follow(
        self, session: str
    ) -> AbstractAsyncContextManager[ObjectReceiveStream[bytes]]:
        """Return a stream of the documents of the session that the other side publishes.

        Some buses also deliver the documents that this side publishes.
        """
        ...


class LocalOrder:
    """Implements `PlacedOrder` within this process."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._settled = anyio.Event()
        self._outcome: OrderResult | RefoldError = OrderResult(changed=False)

    @property
    def settled(self) -> bool:
        return self._settled.is_set()

    async def result(self) -> OrderResult:
        """Wait until the order is settled. Return its result, or raise its error."""
        await self._settled.wait()
        if isinstance(self._outcome, RefoldError):
            raise self._outcome
        return self._outcome

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        if not self.settled:
            self._outcome = outcome
            self._settled.set()


class LocalOrders:
    """Implements `Orders` within this process.

    An order is acknowledged only once its event is recorded. So if the process dies, only
    orders that were not acknowledged are lost.
    """

    def __init__(self) -> None:
        self._waiting = dict[str, deque[LocalOrder]]()
        self._keyed = dict[tuple[str, str], LocalOrder]()  # unsettled orders

    async def put(self, session: str, order: Order) -> LocalOrder:
        """Queue the order, and return it.

        If an unsettled order has the same client key, return the earlier order, and queue
        nothing.
        """
        self._keyed = {
            key: placed for key, placed in self._keyed.items() if not placed.settled
        }
        key = (session, order.client_key)
        if key in self._keyed:
            return self._keyed[key]
        placed = LocalOrder(order)
        if order.client_key:
            self._keyed[key] = placed
        self._waiting.setdefault(session, deque()).append(placed)
        return placed

    async def take(self, session: str, claim: int = 0) -> Sequence[LocalOrder]:
        return tuple(self._waiting.pop(session, ()))


class LocalClaim:
    """Implements `SessionClaim` within this process.

    The runner sets `number` when a worker gets the claim.
    """

    def __init__(self, runner: "LocalRunner", session: str) -> None:
        self.session = session
        self.number = 0
        self._runner = runner
        self._reason = ""
        self._cancelled = anyio.Event()
        self._woken = anyio.Event()
        self._woken.set()  # it is made because there is work
        self.ended = anyio.Event()

    async def wait_for_wake(self) -> None:
        await self._woken.wait()
        self._woken = anyio.Event()

    async def wait_for_cancel(self) -> str:
        await self._cancelled.wait()
        return self._reason

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    async def end(self, *, unfinished: bool = False) -> None:
        """Release the claim; wake the session if work is left, or a wake came meanwhile."""
        self._runner.forget(self)
        self.ended.set()
        if unfinished or (self._woken.is_set() and not self.is_cancelled):
            await self._runner.wake(self.session)

    def wake(self) -> None:
        self._woken.set()

    def cancel(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._cancelled.set()


class LocalRunner:
    """Implements `Runner`: gives every claim to the worker of this process.

    `read_claim` returns the claim number that is recorded with a session
    (`Store.read_claim`). The next claim gets a higher number, also after a restart.
    """

    def __init__(self, read_claim: Callable[[str], Awaitable[int]]) -> None:
        self._read_claim = read_claim
        self._claims = dict[str, LocalClaim]()
        self._new = deque[LocalClaim]()  # claims that no worker has got yet
        self._news = anyio.Event()
        self._last_number = 0
        self._has_worker = False  # whether a worker waits for claims

    async def wake(self, session: str) -> None:
        """Wake the claim on the session; if there is none, make one for the worker here."""
        claim = self._claims.get(session)
        if claim is not None:
            claim.wake()
            return
        new_claim = LocalClaim(self, session)
        self._claims[session] = new_claim
        self._new.append(new_claim)
        self._news.set()

    async def stop(self, session: str, reason: str = "") -> None:
        """Cancel the claim on the session, if there is one, and wait for its end."""
        claim = self._claims.get(session)
        if claim is None:
            return
        claim.cancel(reason)
        self._end_untaken()  # without a worker, nothing else would end the claim
        await claim.ended.wait()

    async def claims(self) -> AsyncGenerator[LocalClaim]:
        """Yield each new claim, with a number above those of earlier claims."""
        self._has_worker = True
        try:
            while True:
                while self._new:
                    # It stays in the queue during the await, so that `_end_untaken` finds it.
                    claim = self._new[0]
                    recorded_number = await self._read_claim(claim.session)
                    self._last_number = max(self._last_number, recorded_number) + 1
                    claim.number = self._last_number
                    yield self._new.popleft()
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            self._has_worker = False
            self._end_untaken()

    def _end_untaken(self) -> None:
        """End the cancelled claims that no worker will take, because `stop` waits until
        they end.
        """
        if self._has_worker:
            return
        cancelled = [claim for claim in self._new if claim.is_cancelled]
        for claim in cancelled:
            self._new.remove(claim)
            self.forget(claim)
            claim.ended.set()

    def forget(self, claim: LocalClaim) -> None:
        if self._claims.get(claim.session) is claim:
            del self._claims[claim.session]
