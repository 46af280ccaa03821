"""Stores the events of a tenant's schedules as rows, for all its workers and web nodes.

One transaction at a time adds events. `journal.schedules.schedule_book` says what they
mean.
"""

import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic

import msgspec

from refold.cluster.database import Connection, Database
from refold.journal.store.shared_log import Change, EventSchema, State

_LOCK_SQL = "select pg_advisory_xact_lock(refold.lock_key('schedules ' || refold.tenant()))"
_READ_SQL = """
select number, change, kind, event from refold.schedule_event
where tenant = refold.tenant() and number > $1 order by number
"""
_ADD_SQL = (
    "insert into refold.schedule_event(number, change, kind, event) values($1, $2, $3, $4)"
)
_STAMP_SQL = "select max(number) from refold.schedule_event where tenant = refold.tenant()"


class ScheduleLog(Generic[State, Change]):
    """Implements `EventLog` with rows of the database. Its methods block.

    `mask` replaces secrets in the events that are written.
    """

    def __init__(
        self,
        database: Database,
        meaning: EventSchema[State, Change],
        mask: Callable[[Change], Change] = lambda event: event,
    ) -> None:
        self._database, self._schema, self._mask = database, meaning, mask
        self._thread_lock = Lock()  # among threads
        self._number, self._state = 0, meaning.empty

    def read(self) -> State:
        with self._thread_lock:
            self._database.call(self._read_new)
            return self._state

    def change(
        self, author: str, decide: Callable[[State], Change | None]
    ) -> tuple[Change | None, State]:
        """Add the event that `decide` returns for the state, unless it returns None.

        Return the event or None, and the state after it. `author` is not stored.
        """
        name = os.urandom(12).hex()  # of this change
        added = list[Change]()

        async def add_event(db: Connection) -> Change | None:
            """Add the event, and return it.

            If this is called again after a lost connection, it returns the event that it
            has added.
            """
            async with db.transaction():
                await db.execute(_LOCK_SQL)
                added.extend(await self._read_new(db, name))
                if added:
                    return added[0]
                event = decide(self._state)
                if event is None:
                    return None
                masked = self._mask(event)
                kind, data = type(masked).__name__, msgspec.json.encode(masked)
                await db.execute(_ADD_SQL, self._number + 1, name, kind, data)
            added.extend(await self._read_new(db, name))
            return added[0]

        with self._thread_lock:
            event = self._database.call(add_event)
            return event, self._state

    def stamp(self) -> object:
        return self._database.call(lambda db: db.fetchval(_STAMP_SQL))

    async def _read_new(self, db: Connection, name: str = "") -> Sequence[Change]:
        """Fold the events that were added since the last call into the state.

        Return the events that the change `name` has added; "" names no change.
        """
        events_of_change = list[Change]()
        for row in await db.fetch(_READ_SQL, self._number):
            events = tuple(self._schema.decode(row["kind"], row["event"]))
            self._state = self._schema.fold(self._state, events)
            self._number = row["number"]
            if row["change"] == name:
                events_of_change += events
        return events_of_change
