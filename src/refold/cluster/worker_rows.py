"""The table of workers: each worker has a row while it runs, which says whether it should
drain.

A worker that drains takes no further sessions, and then exits. Operators read and mark the
rows with `refold cluster`; no row decides which session a worker gets.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from msgspec import Struct

from refold.cluster.database import Connection, Database
from refold.errors import JournalError

_BEAT_SECONDS = 1.0
# A worker without a beat for this time is not listed. Its sessions are given away earlier.
_DEAD_SECONDS = 10.0
_BEAT_SQL = """
insert into refold.worker(id, place, sessions, is_draining) values($1, $2, $3, $4)
on conflict (tenant, id) do update set sessions = $3, seen = clock_timestamp(),
  is_draining = worker.is_draining or $4
returning is_draining
"""
_FORGET_SQL = f"""
delete from refold.worker where tenant = refold.tenant()
  and seen < clock_timestamp() - interval '{_DEAD_SECONDS} seconds'
"""
_WORKERS_SQL = f"""
select id, place, sessions, is_draining from refold.worker where tenant = refold.tenant()
  and seen >= clock_timestamp() - interval '{_DEAD_SECONDS} seconds' order by place, id
"""
_DRAIN_SQL = """
update refold.worker set is_draining = true where tenant = refold.tenant() and id = any($1)
"""


class WorkerStatus(Struct, frozen=True):
    """A worker with a current heartbeat. `sessions` is the number of its claims."""

    id: str
    place: str
    sessions: int
    is_draining: bool


class WorkerRow:
    """The row of this process in the table of workers.

    `count` returns the number of the worker's sessions.
    """

    def __init__(self, database: Database, count: Callable[[], int]) -> None:
        self.id = os.urandom(4).hex()
        self._database, self._count = database, count
        self._place = f"process {os.getpid()} on {os.uname().nodename}"
        self._is_draining = False  # whether the row must be marked as draining
        self._drain_requested = anyio.Event()

    async def run(self) -> None:
        """Update the heartbeat in the row until this is cancelled, then delete the row."""
        try:
            while True:
                with suppress(JournalError):  # the next beat tries again
                    if await self._database.run(self._beat):
                        self._drain_requested.set()
                await anyio.sleep(_BEAT_SECONDS)
        finally:
            query = "delete from refold.worker where tenant = refold.tenant() and id = $1"
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await self._database.run(lambda db: db.execute(query, self.id))

    async def wait_for_drain(self) -> None:
        """Wait until an operator has asked this worker to drain, by `drain`."""
        await self._drain_requested.wait()

    def show_draining(self) -> None:
        """Have the next heartbeat mark the row as draining, even if no operator asked for
        that.
        """
        self._is_draining = True

    async def _beat(self, db: Connection) -> bool:
        """Update the row, delete rows of dead workers, and return whether this worker
        should drain.
        """
        await db.execute(_FORGET_SQL)
        return await db.fetchval(
            _BEAT_SQL, self.id, self._place, self._count(), self._is_draining
        )


async def list_workers(database: Database) -> Sequence[WorkerStatus]:
    """Return the workers of the tenant that have a current heartbeat."""
    rows: Any = await database.run(lambda db: db.fetch(_WORKERS_SQL))
    return [WorkerStatus(*row.values()) for row in rows]


async def drain(
    database: Database, ids: Sequence[str], show: Callable[[WorkerStatus], None]
) -> None:
    """Ask these workers to take no further sessions and to exit, and wait until they are gone.

    `show` is called with each worker that is gone.
    """
    await database.run(lambda db: db.execute(_DRAIN_SQL, list(ids)))
    draining = {
        worker.id: worker for worker in await list_workers(database) if worker.id in ids
    }
    while draining:
        await anyio.sleep(_BEAT_SECONDS)
        present = {worker.id for worker in await list_workers(database)}
        for id_ in draining.keys() - present:
            show(draining.pop(id_))
