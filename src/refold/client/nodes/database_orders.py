"""Queues orders in the database of the sessions, so that none is lost if a process dies.

An order stays in the database until it is settled. If its worker dies before that, the next
claim takes the order again. A message is recorded only once, because it has a client key. An
order that must not be carried out twice is then refused: the error says that the order may
have been carried out.
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

from refold._version import __version__
from refold.client.host_ports import ClosedHere
from refold.client.order_sink import (
    DONE_ONCE_ORDERS,
    AlreadyAnswered,
    OrderResult,
    error_of_order,
)
from refold.client.protocol import (
    Continue,
    Order,
    Queue,
    SendMessage,
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

# The key under which the start values of a session are stored. The key of an order is never
# empty.
_START_KEY = ""
# The body of a row that orders a deletion. `parse_order` rejects it, so no client can send it.
_DELETION_ORDER = b'{"type":"delete_session"}'
SESSION_DELETED = "the conversation was deleted"
# The time between two polls for an outcome. A notification ends the wait earlier.
_POLL_SECONDS = 2.0
_SETTLED_CHANNEL = "settled"  # a notification channel of the database
_RETRY_SECONDS = 0.5  # before waking again, after a wake that failed
# The time between two wakes while an order waits. A wake may be lost when a backup is restored.
_WAKE_AGAIN_SECONDS = 20.0
_UNKNOWN_ORDER = (
    "the worker of this session, refold {version}, does not know the order: restart the workers with "
    "the version of the web nodes, and give the order again ({reason})"
)
_MAY_BE_DONE = (
    "the worker that had this order has ended before it said whether it was carried out: look, "
    "and give the order again if it was not"
)
_TAKE_SQL = """
with waiting as (
  select number, claim from refold.placed_order o
  where tenant = refold.tenant() and session = $1 and key <> '' and outcome is null
    and body <> $4 and (claim is null or claim <= $2) and number <> all($3)
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
    """The outcome of an order: an error, or the part of the result that another process can
    use.
    """

    changed: bool = False
    copy: str = ""
    uploaded: str = ""
    error: str = ""  # the name of the error class
    reason: str = ""


class DatabaseOrder:
    """Implements `PlacedOrder` for a row of the database."""

    def __init__(
        self, orders: "DatabaseOrders", session: str, number: int, order: Order
    ) -> None:
        self._orders = orders
        self._session = session
        self._number = number
        self.order = order
        self.was_taken = False  # whether an earlier claim took it, whose worker died

    async def result(self) -> OrderResult:
        """Wait until a worker has settled the order. Return its result, or raise its error."""
        outcome = await self._orders.wait_for_outcome(self._session, self._number)
        if outcome.error:
            raise error_of_order(outcome.error, outcome.reason, RefoldError)
        return OrderResult(outcome.changed, copy=outcome.copy, uploaded=outcome.uploaded)

    async def settle(self, outcome: OrderResult | RefoldError) -> None:
        """Record the outcome.

        After an error that concerns only this worker, return the order to the queue instead,
        for another worker.
        """
        # After these errors another worker can still carry the order out.
        if isinstance(outcome, ClosedHere | Fenced | Disconnected | Conflict):
            await self._orders.give_back(self._session, self._number)
            return
        if isinstance(outcome, AlreadyAnswered) and self.was_taken:
            # The worker that died has recorded the answer.
            outcome = OrderResult(changed=False)
        await self._orders.settle(self._session, self._number, _to_outcome(outcome))


class DatabaseDeletion:
    """The order to delete a session, for the next worker that gets a claim on the session.

    `DatabaseOrders.take` does not return it, because an order is carried out in an open
    session, and a damaged session cannot be opened.
    """

    def __init__(self, orders: "DatabaseOrders", session: str, number: int) -> None:
        self._orders = orders
        self._session = session
        self._number = number

    async def result(self) -> None:
        """Wait until the session is deleted. Raises an error if it could not be deleted."""
        outcome = await self._orders.wait_for_outcome(self._session, self._number)
        if outcome.reason != SESSION_DELETED:  # the row of this order was deleted, too
            raise error_of_order(outcome.error, outcome.reason, RefoldError)

    async def fail(self, error: RefoldError) -> None:
        """Record why the session could not be deleted."""
        await self._orders.settle(self._session, self._number, _to_outcome(error))


class DatabaseOrders:
    """Implements `Orders`. While `run` runs, outcomes are noticed at once.

    If the database also assigns sessions to workers, one transaction stores an order and
    wakes its session. If another service assigns them, `wake` is called again and again
    until the order has a result. A client that gets no result sends the order again.

    If the connection breaks during `take`, the database may have given the claim orders
    that this worker did not get. The next `take` returns them again.
    """

    def __init__(
        self, database: Database, wake: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._database = database
        self._wake = wake
        self._news = anyio.Event()  # set when any order was settled, and replaced
        # By the number of an order: the claim under which this worker took it.
        self._held = dict[int, int]()

    async def run(self) -> None:
        """Listen for outcomes until this task is cancelled."""
        async with self._database.listen(_SETTLED_CHANNEL) as notifications:
            async for _ in notifications:
                self._news.set()
                self._news = anyio.Event()

    async def put(self, session: str, order: Order) -> DatabaseOrder:
        """Store the order, and return it with its number.

        If an order of the session has the same client key, the number is that of the
        earlier one.
        """
        recorded = _to_recorded(order)
        key = recorded.client_key or os.urandom(12).hex()
        keyed = replace(recorded, client_key=key)
        kind = str(keyed.__struct_config__.tag)
        await self._place(session, key, msgspec.json.encode(keyed), keyed.by, kind)
        return await self._find_placed(session, key, keyed)

    async def take(self, session: str, claim: int = 0) -> Sequence[DatabaseOrder]:
        """Take the waiting orders under this claim, oldest first.

        An order that cannot be read is refused and not returned. The same holds for an order
        that must not be carried out twice, if an earlier claim has taken the order.
        """
        # The query leaves out the orders that this claim has taken already.
        already_taken = [
            number for number, held_under in self._held.items() if held_under == claim
        ]
        values = session, claim, already_taken, _DELETION_ORDER
        rows: Any = await self._database.run(lambda db: db.fetch(_TAKE_SQL, *values))
        orders = list[DatabaseOrder]()
        for row in sorted(rows, key=lambda row: row["number"]):
            number, earlier_claim = row["number"], row["earlier"]
            self._held[number] = claim
            order, refusal = _parse_placed(row["body"])
            placed = DatabaseOrder(self, session, number, order)
            placed.was_taken = earlier_claim is not None and earlier_claim != claim
            if not refusal and placed.was_taken and isinstance(order, DONE_ONCE_ORDERS):
                refusal = _MAY_BE_DONE
            if not refusal:
                orders.append(placed)
                continue
            with suppress(Disconnected):  # the next claim refuses the order then
                await placed.settle(BadInput(refusal))
        return orders

    async def begin(self, session: str, values: bytes, person: str = "") -> DatabaseOrder:
        """Have a worker begin a session with these start values, and return the order to do so.

        The order is recorded as that of `person`.
        """
        await self._place(session, _START_KEY, values, person, kind="")
        return await self._find_placed(session, _START_KEY, Continue(by=person))

    async def read_start(self, session: str) -> tuple[bytes, DatabaseOrder | None]:
        """Return the start values of the session, and the order to begin it.

        The order is None if it is settled already. If no start values are stored, return
        (b"", None).
        """
        query = (
            "select body, number, person, outcome is null as waits from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and key = $2"
        )
        row: Any = await self._database.run(
            lambda db: db.fetchrow(query, session, _START_KEY)
        )
        if row is None:
            return b"", None
        begin_order = Continue(by=row["person"])
        placed = DatabaseOrder(self, session, row["number"], begin_order)
        is_settled = not row["waits"]
        return row["body"], None if is_settled else placed

    async def delete(self, session: str, person: str = "") -> "DatabaseDeletion":
        """Have a worker delete the session once no worker has a claim on it; return the
        order to do so.
        """
        key = os.urandom(12).hex()
        await self._place(session, key, _DELETION_ORDER, person, kind="delete_session")
        return DatabaseDeletion(self, session, await self._read_number(session, key))

    async def read_deletion(self, session: str) -> "DatabaseDeletion | None":
        """Return the order to delete the session that waits for a worker; None if there is
        none.
        """
        query = (
            "select number from refold.placed_order where tenant = refold.tenant() "
            "and session = $1 and outcome is null and body = $2 order by number limit 1"
        )
        number = await self._database.run(
            lambda db: db.fetchval(query, session, _DELETION_ORDER)
        )
        return None if number is None else DatabaseDeletion(self, session, number)

    async def give_back(self, session: str, number: int) -> None:
        """Return a taken order to the queue, for the current claim or a later claim."""
        # An order under an earlier claim is free for the current one.
        query = (
            "update refold.placed_order set claim = claim - 1 where tenant = refold.tenant() "
            "and session = $1 and number = $2 and outcome is null"
        )
        self._held.pop(number, None)
        # If this fails, a later claim takes the order as that of a worker that died.
        with suppress(JournalError):
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
        """Wait until the order is settled, and return its outcome.

        If another service assigns sessions, its worker is woken again and again until then.
        """
        outcome: Outcome | None = None
        problem: JournalError | None = None  # a task group would wrap it if raised inside
        async with anyio.create_task_group() as group:
            if self._wake is not None:
                group.start_soon(_keep_awake, partial(self._wake, session))
            try:
                outcome = await self._read_outcome(session, number)
            except JournalError as error:
                problem = error
            group.cancel_scope.cancel()
        if problem is not None:
            raise problem
        assert outcome is not None, "an order without a problem has an outcome"
        return outcome

    async def _read_outcome(self, session: str, number: int) -> Outcome:
        """Wait for the outcome of the order by polling. Return an error if the session was
        deleted.
        """
        query = (
            "select outcome from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and number = $2"
        )
        while True:
            news = self._news  # before the query, so that no notification is missed
            row: Any = await self._database.run(
                lambda db: db.fetchrow(query, session, number)
            )
            if row is None:
                return Outcome(error=BadInput.__name__, reason=SESSION_DELETED)
            if row["outcome"] is not None:
                return msgspec.json.decode(row["outcome"], type=Outcome)
            with anyio.move_on_after(_POLL_SECONDS):
                await news.wait()

    async def _place(
        self, session: str, key: str, body: bytes, person: str, kind: str
    ) -> None:
        """Store an order under `key`; wake its session if the database assigns sessions."""
        function = "place_order" if self._wake is None else "record_order"
        query = f"select refold.{function}($1, $2, $3, $4, $5)"
        values = session, key, body, person, kind
        await self._database.run(lambda db: db.execute(query, *values))

    async def _find_placed(self, session: str, key: str, order: Order) -> DatabaseOrder:
        """Return the order that was placed first under this key."""
        return DatabaseOrder(self, session, await self._read_number(session, key), order)

    async def _read_number(self, session: str, key: str) -> int:
        """Return the number of the order with the client key `key`.

        Raises `BadInput` if it was deleted.
        """
        query = (
            "select number from refold.placed_order "
            "where tenant = refold.tenant() and session = $1 and key = $2"
        )
        number: int | None = await self._database.run(
            lambda db: db.fetchval(query, session, key)
        )
        if number is None:
            raise BadInput(SESSION_DELETED)
        return number


async def _keep_awake(wake: Callable[[], Awaitable[None]]) -> None:
    """Call `wake` again and again, until this is cancelled.

    The pause is shorter after a call that failed.
    """
    while True:
        pause = _WAKE_AGAIN_SECONDS
        try:
            await wake()
        except JournalError:
            pause = _RETRY_SECONDS
        await anyio.sleep(pause)


def _parse_placed(body: bytes) -> tuple[Order, str]:
    """Return the order that was stored as `body`, and the reason to refuse it, or "".

    If `body` cannot be parsed, another order is returned in its place, with the reason.
    """
    try:
        return parse_order(body), ""
    except BadInput as error:  # a newer web node has placed it
        return Continue(), _UNKNOWN_ORDER.format(version=__version__, reason=error)


def _to_recorded(order: Order) -> Order:
    """Return the order as one that is recorded before it is settled.

    Only a `SendMessage` is changed: its message would wait in the memory of a worker after
    it was settled, and could be lost.
    """
    if not isinstance(order, SendMessage):
        return order
    kind = Steer if order.when == "now" else Queue
    return kind(
        order.text, order.images, order.typed, client_key=order.client_key, by=order.by
    )


def _to_outcome(outcome: OrderResult | RefoldError) -> Outcome:
    if isinstance(outcome, RefoldError):
        return Outcome(error=type(outcome).__name__, reason=str(outcome))
    return Outcome(changed=outcome.changed, copy=outcome.copy, uploaded=outcome.uploaded)
