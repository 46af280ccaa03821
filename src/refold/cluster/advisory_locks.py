"""The advisory locks of this process in PostgreSQL, and their owners in this process.

`database` opens the connection for the locks, and another connection if that one is lost.
"""

from typing import Any

import anyio
from msgspec import Struct


class AdvisoryLocks:
    """The advisory locks of this process, on one connection.

    PostgreSQL would grant a lock again to the connection that has it. So this class decides
    which owner in this process gets a lock.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._owners = dict[str, _Owners]()
        self._connection_lock = anyio.Lock()  # a connection does one thing at a time

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def lock(self, name: str, owner: object, shared: bool) -> bool:
        """Lock `name` for `owner`. Return False if another owner or process has the lock."""
        async with self._connection_lock:
            owners = self._owners.get(name)
            if owners is None:
                function = f"pg_try_advisory_lock{_lock_suffix(shared)}"
                if not await self._call(function, name):
                    return False
                owners = _Owners(shared, all=set())
                self._owners[name] = owners
            elif owner not in owners.all:
                may_share = shared and owners.shared
                if not may_share:
                    return False
            owners.all.add(owner)
            return True

    async def unlock(self, name: str, owner: object) -> None:
        async with self._connection_lock:
            owners = self._owners.get(name)
            if owners is None or owner not in owners.all:
                return  # it does not have the lock
            owners.all.remove(owner)
            if not owners.all:
                del self._owners[name]
                if not self.is_closed:
                    function = f"pg_advisory_unlock{_lock_suffix(owners.shared)}"
                    await self._call(function, name)

    async def _call(self, function: str, name: str) -> bool:
        query = f"select {function}(refold.lock_key($1))"
        return await self._connection.fetchval(query, name)

    async def close(self) -> None:
        self._owners.clear()
        await self._connection.close()


class _Owners(Struct, frozen=True):
    """The owners of one lock: one, or several that share it."""

    shared: bool
    all: set[object]


def _lock_suffix(shared: bool) -> str:
    """Return the suffix of PostgreSQL's lock functions: "_shared" for a shared lock, else
    "".
    """
    return "_shared" if shared else ""
