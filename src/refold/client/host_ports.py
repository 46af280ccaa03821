"""The ports between a host, which orders and follows, and a worker, which leases and runs.

`Orders` is a queue in front of each session's inbox. `Runner` decides which worker runs a
session, and when. A host places an order, wakes the session and waits for the result; a
worker gets a claim on the session, carries the orders out and runs turns until nothing is
left to do. Here are both ports for one process, too. `host` and `session_worker` use them;
`refold.testing.port_conformance` has their contracts.
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
    def order(self) -> Order: ...

    async def result(self) -> OrderResult:
        """Wait until it is carried out. Raises the error with which it was settled."""
        ...

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        """Record the result or the error of the order. Only the first outcome counts.

        After `ClosedHere` another claim may carry the order out instead.
        """
        ...


class Orders(Protocol):
    """The orders that wait for a worker, by session."""

    async def put(self, session: str, order: Order) -> PlacedOrder:
        """Queue an order; return an unsettled one with the same client key instead."""
        ...

    async def take(self, session: str, claim: int = 0) -> Sequence[PlacedOrder]:
        """Take the waiting orders under this claim, oldest first. Each is taken once.

        If they outlive their worker, a later claim takes those that were not settled.
        """
        ...


class ClosedHere(BadInput):
    """The session was closed in this process before the order was carried out."""


class SessionClaim(Protocol):
    """The right to run a session. One worker has it at a time.

    `number` is higher than that of any earlier claim on this session. The worker leases the
    session's store under it.
    """

    @property
    def session(self) -> str: ...
    @property
    def number(self) -> int: ...

    async def wait_for_wake(self) -> None:
        """Return once the session was woken since the last call returned."""
        ...

    async def wait_for_cancel(self) -> str:
        """Return the reason once the claim must end; "" if what runs now may finish."""
        ...

    async def end(self, *, unfinished: bool = False) -> None:
        """Release the claim. There is a new one if this one is unfinished, or the session was woken
        meanwhile.
        """
        ...


class Runner(Protocol):
    """Decides who runs a session."""

    async def wake(self, session: str) -> None:
        """Notify the worker that holds the claim on the session of new work, or give a worker the claim."""
        ...

    async def stop(self, session: str, reason: str = "") -> None:
        """Cancel the claim on the session, if there is one, and wait for its end."""
        ...

    def claims(self) -> AsyncGenerator[SessionClaim]:
        """The claims for this worker, as they come."""
        ...


class Bus(Protocol):
    """Carries live documents of sessions between workers and web nodes. Some may be lost."""

    async def publish(self, session: str, document: bytes) -> None:
        """Send a document of at most `MAX_BUS_BYTES` to the other side, where it follows the session."""
        ...

    def follow(
        self, session: str
    ) -> AbstractAsyncContextManager[ObjectReceiveStream[bytes]]:
        """Receive the documents of the session. Some buses also give those of this side."""
        ...


class LocalOrder:
    """An order within this process."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._settled = anyio.Event()
        self._outcome: OrderResult | RefoldError = OrderResult(False)

    @property
    def settled(self) -> bool:
        return self._settled.is_set()

    async def result(self) -> OrderResult:
        await self._settled.wait()
        if isinstance(self._outcome, RefoldError):
            raise self._outcome
        return self._outcome

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        if not self.settled:
            self._outcome = outcome
            self._settled.set()


class LocalOrders:
    """The orders within this process. An order is acknowledged once its event is recorded,
    so those that wait may be lost with the process.
    """

    def __init__(self) -> None:
        self._waiting = dict[str, deque[LocalOrder]]()
        self._keyed = dict[tuple[str, str], LocalOrder]()  # unsettled orders

    async def put(self, session: str, order: Order) -> LocalOrder:
        key = (session, order.client_key)
        self._keyed = {k: o for k, o in self._keyed.items() if not o.settled}
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
    def __init__(self, runner: "LocalRunner", session: str) -> None:
        self.session, self.number = session, 0
        self._runner, self._reason = runner, ""
        self._woken, self._cancelled = anyio.Event(), anyio.Event()
        self._woken.set()
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
    """A runner that gives every claim to the worker of this process.

    `read_claim` gives the number that is recorded with a session (`Store.read_claim`): that of
    the next claim is higher, also after a restart.
    """

    def __init__(self, read_claim: Callable[[str], Awaitable[int]]) -> None:
        self._read_claim = read_claim
        self._claims = dict[str, LocalClaim]()
        self._new = deque[LocalClaim]()
        self._news = anyio.Event()
        self._number = 0
        self._has_worker = False  # which waits for claims

    async def wake(self, session: str) -> None:
        if (claim := self._claims.get(session)) is not None:
            claim.wake()
            return
        self._claims[session] = claim = LocalClaim(self, session)
        self._new.append(claim)
        self._news.set()

    async def stop(self, session: str, reason: str = "") -> None:
        if (claim := self._claims.get(session)) is not None:
            claim.cancel(reason)
            self._end_untaken()
            await claim.ended.wait()

    async def claims(self) -> AsyncGenerator[LocalClaim]:
        self._has_worker = True
        try:
            while True:
                while self._new:
                    claim = self._new[0]
                    recorded = await self._read_claim(claim.session)
                    self._number = claim.number = max(self._number, recorded) + 1
                    yield self._new.popleft()
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            self._has_worker = False
            self._end_untaken()

    def _end_untaken(self) -> None:
        """End the cancelled claims that no worker takes any more: `stop` waits for their ends."""
        if self._has_worker:
            return
        for claim in [claim for claim in self._new if claim.is_cancelled]:
            self._new.remove(claim)
            self.forget(claim)
            claim.ended.set()

    def forget(self, claim: LocalClaim) -> None:
        if self._claims.get(claim.session) is claim:
            del self._claims[claim.session]
