"""Orders in the database of the sessions: each client key once, and none lost with a process.

An order stays until it is settled. If its worker dies before, the next claim takes it again, and a
message is recorded once, by its key. An order that must not be carried out twice is refused then: the
error says that it may have been carried out.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.client.host_ports import ClosedHere
from refold.client.order_sink import AlreadyAnswered, OrderResult
from refold.client.protocol import (
    CompactConversation,
    Continue,
    Fork,
    Order,
    Queue,
    Rewind,
    SendMessage,
    ShellOutput,
    Steer,
    parse_order,
)
from refold.cluster.database import Database
from refold.errors import (
    BadInput,
    Conflict,
    Disconnected,
    Fenced,
    JournalError,
    RefoldError,
)

_START_KEY = ""  # of the start values of a new session; no order of a client has it
_POLL_SECONDS = 2.0  # between two looks for an outcome; a notification ends the wait
_SETTLED_CHANNEL = "settled"  # a channel
_RETRY_SECONDS = 0.5  # after a wake that failed
_WAKE_AGAIN_SECONDS = (
    20.0  # while an order waits: its wake may have been lost with a restored backup
)
_DONE_ONCE = Fork, Continue, CompactConversation, Rewind, ShellOutput
_MAY_BE_DONE = (
    "the worker that had this order has ended before it said whether it was carried out: look, "
    "and give the order again if it was not"
)
_ERRORS: dict[str, type[RefoldError]] = {
    error.__name__: error for error in (BadInput, AlreadyAnswered)
}
_TAKE_SQL = """
with waiting as (
  select number, claim from refold.placed_order o
  where tenant = refold.tenant() and session = $1 and key <> '' and outcome is null
    and (claim is null or claim <= $2) and number <> all($3)
    and not exists (select from refold.journal j where j.tenant = o.tenant
      and j.session = o.session and j.claim > $2)
  for update
)
update refold.placed_order o set claim = $2 from waiting w
where o.tenant = refold.tenant() and o.session = $1 and o.number = w.number
returning o.number, o.body, w.claim as earlier
"""
_SETTLE_SQL = """
with settled as (
  update refold.placed_order set outcome = $3, body = case key when '' then body end
  where tenant = refold.tenant() and session = $1 and number = $2 and outcome is null
  returning number
)
select pg_notify(refold.channel('settled'), '') from settled
"""


class Outcome(Struct, frozen=True, omit_defaults=True):
    """The part of a result that another process can use, or an error."""

    changed: bool = False
    copy: str = ""
    error: str = ""  # the class
    reason: str = ""


class DatabaseOrder:
    """Implements `PlacedOrder`."""

    def __init__(
        self, orders: "DatabaseOrders", session: str, number: int, order: Order
    ) -> None:
        self._orders, self._session, self._number = orders, session, number
        self.order = order

    async def result(self) -> OrderResult:
        outcome = await self._orders.wait_for_outcome(self._session, self._number)
        if outcome.error:
            raise _ERRORS.get(outcome.error, RefoldError)(outcome.reason)
        return OrderResult(outcome.changed, copy=outcome.copy)

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        if isinstance(outcome, ClosedHere | Fenced | Disconnected | Conflict):
            await self._orders.give_back(self._session, self._number)
            return
        await self._orders.settle(self._session, self._number, _to_outcome(outcome))


class DatabaseOrders:
    """Implements `Orders`. While it runs, outcomes are noticed at once.

    With the queue of the database, an order wakes its session in its transaction. If something else
    says who runs a session, `wake` is called while the result is awaited: until then the order is
    not acknowledged, and a client that gets no result sends it again.

    The answer to `take` can be lost with a connection. So an order that this claim has, and that no
    worker holds, is taken again.
    """

    def __init__(
        self, database: Database, wake: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._database, self._wake, self._news = database, wake, anyio.Event()
        self._held = dict[int, int]()  # the claims of the orders that this worker has

    async def run(self) -> None:
        """Listen for outcomes until this is cancelled."""
        async with self._database.listen(_SETTLED_CHANNEL) as notifications:
            async for _ in notifications:
                news, self._news = self._news, anyio.Event()
                news.set()

    async def put(self, session: str, order: Order) -> DatabaseOrder:
        order = _to_recorded(order)
        key = order.client_key or os.urandom(12).hex()
        order = replace(order, client_key=key)
        values = session, key, msgspec.json.encode(order), order.by
        await self._place(*values, str(order.__struct_config__.tag))
        return await self._get(session, key, order)

    async def take(self, session: str, claim: int = 0) -> Sequence[DatabaseOrder]:
        held = [number for number, taken_by in self._held.items() if taken_by == claim]
        values = session, claim, held
        rows: Any = await self._database.run(lambda db: db.fetch(_TAKE_SQL, *values))
        taken = list[DatabaseOrder]()
        for row in sorted(rows, key=lambda row: row["number"]):
            placed = DatabaseOrder(self, session, row["number"], parse_order(row["body"]))
            self._held[row["number"]] = claim
            if row["earlier"] not in (None, claim) and isinstance(placed.order, _DONE_ONCE):
                with suppress(Disconnected):  # it stays held, and the next claim refuses it
                    await placed.settle(BadInput(_MAY_BE_DONE))
            else:
                taken.append(placed)
        return taken

    async def begin(self, session: str, values: bytes, person: str = "") -> DatabaseOrder:
        """Have a worker begin a session with these start values, for this person."""
        await self._place(session, _START_KEY, values, person, "")
        return await self._get(session, _START_KEY, Continue(by=person))

    async def read_start(self, session: str) -> tuple[bytes, DatabaseOrder | None]:
        """The start values of the session, and its beginning, unless that is settled."""
        query = (
            "select body, number, person, outcome is null as waits from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and key = $2"
        )
        row: Any = await self._database.run(
            lambda db: db.fetchrow(query, session, _START_KEY)
        )
        if row is None:
            return b"", None
        begins = Continue(by=row["person"])
        placed = DatabaseOrder(self, session, row["number"], begins)
        return row["body"], placed if row["waits"] else None

    async def give_back(self, session: str, number: int) -> None:
        """Return a taken order to the queue, for a later claim or the same one."""
        query = (
            "update refold.placed_order set claim = claim - 1 where tenant = refold.tenant() "
            "and session = $1 and number = $2 and outcome is null"
        )
        self._held.pop(number, None)
        with suppress(JournalError):  # it is taken as that of a worker that died
            await self._database.run(lambda db: db.execute(query, session, number))
            if self._wake is not None:
                await self._wake(session)
            else:
                wake = "select refold.wake($1)"
                await self._database.run(lambda db: db.execute(wake, session))

    async def settle(self, session: str, number: int, outcome: Outcome) -> None:
        data = msgspec.json.encode(outcome)
        await self._database.run(lambda db: db.fetch(_SETTLE_SQL, session, number, data))
        self._held.pop(number, None)

    async def wait_for_outcome(self, session: str, number: int) -> Outcome:
        outcome: Outcome | JournalError = Outcome()
        async with anyio.create_task_group() as group:
            if self._wake is not None:
                group.start_soon(_keep_awake, partial(self._wake, session))
            try:
                outcome = await self._read_outcome(session, number)
            except JournalError as error:  # raised below, outside of the group
                outcome = error
            group.cancel_scope.cancel()
        if isinstance(outcome, JournalError):
            raise outcome
        return outcome

    async def _read_outcome(self, session: str, number: int) -> Outcome:
        query = (
            "select outcome from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and number = $2"
        )
        while True:
            news = self._news
            data = await self._database.run(lambda db: db.fetchval(query, session, number))
            if data is not None:
                return msgspec.json.decode(data, type=Outcome)
            with anyio.move_on_after(_POLL_SECONDS):
                await news.wait()

    async def _place(
        self, session: str, key: str, body: bytes, person: str, kind: str
    ) -> None:
        function = "place_order" if self._wake is None else "record_order"
        query = f"select refold.{function}($1, $2, $3, $4, $5)"
        values = session, key, body, person, kind
        await self._database.run(lambda db: db.execute(query, *values))

    async def _get(self, session: str, key: str, order: Order) -> DatabaseOrder:
        query = (
            "select number from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and key = $2"
        )
        number = await self._database.run(lambda db: db.fetchval(query, session, key))
        return DatabaseOrder(self, session, number, order)


async def _keep_awake(wake: Callable[[], Awaitable[None]]) -> None:
    """Wake a session; wake it again after an outage of the service that says who runs it."""
    while True:
        pause = _WAKE_AGAIN_SECONDS
        try:
            await wake()
        except JournalError:
            pause = _RETRY_SECONDS
        await anyio.sleep(pause)


def _to_recorded(order: Order) -> Order:
    """The order, as one that is in the journal once it is settled."""
    if not isinstance(order, SendMessage):
        return order
    kind = Steer if order.when == "now" else Queue
    return kind(
        order.text, order.images, order.typed, client_key=order.client_key, by=order.by
    )


def _to_outcome(outcome: OrderResult | RefoldError) -> Outcome:
    if isinstance(outcome, RefoldError):
        return Outcome(error=type(outcome).__name__, reason=str(outcome))
    return Outcome(outcome.changed, outcome.copy)
