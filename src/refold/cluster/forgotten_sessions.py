"""Wakes sessions that have something to do although no runner knows of them.

A process that places an order may die before it wakes the session. A runner may lose what
it knew, for example if the database of Temporal was deleted. So this module looks for old
orders, and for open turns whose session no process has. Such a turn is continued only if a
worker left it: a turn that a person left in a terminal waits for that person.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import anyio

from refold.cluster.card_index import index_session
from refold.cluster.database import Connection, Database
from refold.errors import JournalError

FORGOTTEN_SECONDS = 20.0  # after which an order or an open turn may have been forgotten
_MAX_AT_ONCE = 20  # sessions that are woken, the oldest first, because workers may be busy
_AGAIN_SECONDS = 600.0  # until a turn that no worker could continue is tried again
_ORDERS_SQL = """
select session from refold.placed_order where tenant = refold.tenant()
  and outcome is null and placed < now() - make_interval(secs => $1)
  group by session order by min(number) limit $2
"""
# A process that has a session holds its lock.
_LEFT_SQL = """
  j.tenant = refold.tenant() and j.session = j.root
  and j.changed < now() - make_interval(secs => $1)
  and (nullif(j.holder, '')::jsonb->>'claim')::bigint > 0 and not refold.is_locked(j.session)
"""
_UNINDEXED_SQL = f"""
select session from refold.journal j where indexed <> lines and {_LEFT_SQL}
order by changed limit $2
"""
_TURNS_SQL = f"""
select session from refold.card c join refold.journal j using (tenant, session)
where c.tenant = refold.tenant() and c.is_open and c.shelf is not null and session <> all($3)
  and {_LEFT_SQL} order by j.changed limit $2
"""


class ForgottenSessions:
    """Finds forgotten sessions and wakes them.

    `is_here` returns whether this worker has the session. Orders are old after `seconds`.
    """

    def __init__(
        self,
        database: Database,
        wake: Callable[[str], Awaitable[None]],
        is_here: Callable[[str], bool],
        seconds: float = FORGOTTEN_SECONDS,
    ) -> None:
        self._database, self._wake, self._is_here = database, wake, is_here
        self._seconds = seconds
        self._woken = dict[str, float]()  # by session, when its open turn was tried last

    async def run(self) -> None:
        """Look for forgotten sessions until this is cancelled."""
        while True:
            await anyio.sleep(self._seconds)
            with suppress(JournalError):  # tried again the next time
                for session in await self._database.run(self._sessions_of_orders):
                    if not self._is_here(session):
                        await self._wake(session)
                await self._wake_open_turns()

    async def _sessions_of_orders(self, db: Connection) -> Sequence[str]:
        rows = await db.fetch(_ORDERS_SQL, self._seconds, _MAX_AT_ONCE)
        return [row["session"] for row in rows]

    async def _wake_open_turns(self) -> None:
        """Wake forgotten sessions with an open turn, each once in `_AGAIN_SECONDS`."""
        since = time.monotonic() - _AGAIN_SECONDS
        self._woken = {id_: woken for id_, woken in self._woken.items() if woken > since}
        for session in await self._database.run(self._sessions_of_turns):
            await self._wake(session)
            self._woken[session] = time.monotonic()

    async def _sessions_of_turns(self, db: Connection) -> Sequence[str]:
        """Index the sessions that no worker has, and return those with an open turn."""
        limits = self._seconds, _MAX_AT_ONCE
        for row in await db.fetch(_UNINDEXED_SQL, *limits):
            while await index_session(db, row["session"]):  # until all lines are indexed
                pass
        rows = await db.fetch(_TURNS_SQL, *limits, list(self._woken))
        return [row["session"] for row in rows]
