"""Limits how many sessions of a tenant run at once.

A tenant has as many slots as it may have running sessions, and each running session locks a
slot. PostgreSQL releases the locks when the worker dies. The queue of Procrastinate needs
no slots, because it counts its jobs.
"""

import time

import anyio

from refold.cluster.database import Connection, Database

_CHECK_SECONDS = 1.0  # for which no slot is looked for after none was free
# These names are not ids of sessions, which have no space.
_FREE_SLOTS_SQL = """
select number from generate_series(1, $1::int) number where not refold.is_locked('slot ' || number)
limit 5
"""
_LIMIT_SQL = "select max_running from refold.tenant_settings where tenant = refold.tenant()"


class RunningSlots:
    """The slots that sessions of this worker have locked, by the numbers of their claims."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._slots = dict[int, str]()
        self._full_until = 0.0

    async def take(self, claim: int) -> bool:
        """Take a slot for a claim, if the tenant has a limit. Return False if none is free."""
        if time.monotonic() < self._full_until:
            return False
        with anyio.CancelScope(shield=True):  # a lock that is taken must be remembered
            limit, free_slots = await self._database.run(_read_free_slots)
            if limit is None:
                return True
            for slot in free_slots:  # another worker may have locked one meanwhile
                if await self._database.lock(slot, claim):
                    self._slots[claim] = slot
                    return True
        self._full_until = time.monotonic() + _CHECK_SECONDS
        return False

    async def release(self, claim: int) -> None:
        """Release the slot of a claim, if it has one."""
        if (slot := self._slots.pop(claim, None)) is not None:
            with anyio.CancelScope(shield=True):
                await self._database.unlock(slot, claim)


async def _read_free_slots(db: Connection) -> tuple[int | None, list[str]]:
    """Return the limit of the tenant (None: no limit) and some slots that may be free."""
    limit: int | None = await db.fetchval(_LIMIT_SQL)
    if limit is None:
        return None, []
    rows = await db.fetch(_FREE_SLOTS_SQL, limit)
    return limit, [f"slot {row['number']}" for row in rows]
