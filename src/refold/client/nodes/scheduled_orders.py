"""Starts due schedules in a cluster: a run is a session with one order.

Every worker looks for due schedules. A worker first records the claim of the run and the id
of its session in the log of the schedules. Then the worker places the order, which has a
client key of its own. So a run is started once, however many workers look, and if its worker
dies, another worker places the order. Then the session is run like any other. The session
always keeps the rights of its schedule.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio import to_thread

from refold.app.session_schedules import prompt_of_run
from refold.client.new_conversation import ScheduledConversation
from refold.client.nodes.database_orders import DatabaseOrders, Outcome
from refold.client.nodes.services import NodeRunner
from refold.client.protocol import Queue
from refold.cluster.database import Connection, Database
from refold.errors import JournalError
from refold.journal.events import codec
from refold.journal.events.kinds import Event, ModelAnswered, TurnEnded
from refold.journal.schedules.schedule_book import (
    CUT_OFF,
    Schedule,
    ScheduleBook,
    ScheduledRun,
)

FAILED_OUTCOME = "failed"
_POLL_SECONDS = 5.0
# After a run is claimed, any worker may place it within this time. Later it counts as cut off.
_PLACE_SECONDS = 300.0
_MAX_TEXT_CHARS = 500  # of a response that are stored with the run
_ORDERS_OF_RUN = 2  # the order to begin the session, and the message
_ORDERS_SQL = """
select outcome from refold.placed_order where tenant = refold.tenant() and session = $1
"""
_LAST_LINE_SQL = """
select line from refold.line where tenant = refold.tenant() and session = $1
  and position($2::bytea in line) > 0 order by seq desc limit 1
"""


class ScheduledOrders:
    """Starts the due runs of the schedules in `book`, and records how they ended.

    `now` returns the current time.
    """

    def __init__(
        self,
        book: ScheduleBook,
        database: Database,
        orders: DatabaseOrders,
        runner: NodeRunner,
        new_id: Callable[[float], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._book = book
        self._database = database
        self._orders = orders
        self._runner = runner
        self._new_id = new_id
        self._now = now

    async def run(self) -> None:
        """Start due runs until this is cancelled."""
        while True:
            with suppress(JournalError):  # tried again the next time
                await self.start_due()
            await anyio.sleep(_POLL_SECONDS)

    async def start_due(self) -> None:
        """Start the runs that are due now, and record the ends of runs that have ended."""
        for schedule in await to_thread.run_sync(self._book.list_schedules):
            run = schedule.running
            now = self._now()
            if run is None and schedule.may_be_due(now):
                # None if another node has begun the run meanwhile.
                run = await to_thread.run_sync(self._book.claim, schedule.id, now)
            if run is not None:
                await self._place_or_end(schedule, run)

    async def _place_or_end(self, schedule: Schedule, run: ScheduledRun) -> None:
        """Place the orders of a claimed run, or record its end if it has ended."""
        if not run.session:
            id_ = await to_thread.run_sync(self._new_id, run.started)
            run_with_id = await to_thread.run_sync(self._book.open_run, schedule.id, id_)
            if run_with_id is None:
                return
            run = run_with_id
        end = await self._database.run(lambda db: _read_end(db, run.session))
        if end is None:  # not all orders are placed
            may_be_placed = self._now() - run.started <= _PLACE_SECONDS
            if may_be_placed:
                await self._place(schedule, run)
                return
            end = CUT_OFF, ""  # the session was deleted
        outcome, text = end
        if not outcome:  # it still runs
            return
        await to_thread.run_sync(
            self._book.end_run, schedule.id, run.session, outcome, text[:_MAX_TEXT_CHARS]
        )

    async def _place(self, schedule: Schedule, run: ScheduledRun) -> None:
        """Place the order that begins the session of a run, and the order with its prompt.

        The orders have the same keys each time, so placing them again has no effect.
        """
        start = ScheduledConversation(
            workspace=schedule.plan.workspace, schedule=schedule.id
        )
        # The same each time: the number of the webhook call, or the time that was due.
        key = f"schedule {schedule.id} {run.call or run.due}"
        order = Queue(prompt_of_run(schedule, run), client_key=key)
        await self._orders.begin(run.session, msgspec.json.encode(start))
        await self._orders.put(run.session, order)
        await self._runner.wake(run.session)


async def _read_end(db: Connection, session: str) -> tuple[str, str] | None:
    """Return the outcome of a run, and its last response or the reason of its failure.

    Return ("", "") while it runs, and None if some of its orders are not placed yet.
    """
    rows: Any = await db.fetch(_ORDERS_SQL, session)
    if len(rows) < _ORDERS_OF_RUN:
        return None
    for row in rows:
        if row["outcome"] is None:  # no worker has carried it out yet
            continue
        outcome = msgspec.json.decode(row["outcome"], type=Outcome)
        if outcome.error:
            return FAILED_OUTCOME, outcome.reason
    ended = await _read_last_event(db, session, b'"TurnEnded"')
    if not isinstance(ended, TurnEnded):
        return "", ""
    if ended.reason:
        return ended.outcome, ended.reason
    answered = await _read_last_event(db, session, b'"ModelAnswered"')
    text = answered.message.text if isinstance(answered, ModelAnswered) else ""
    return ended.outcome, text


async def _read_last_event(db: Connection, session: str, kind: bytes) -> Event | None:
    """Return the session's last event of this kind; None if it has none."""
    line = await db.fetchval(_LAST_LINE_SQL, session, kind)
    return None if line is None else codec.decode_unchecked(line)
