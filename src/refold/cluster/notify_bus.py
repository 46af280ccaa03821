"""A `Bus` on notifications of PostgreSQL, for up to about a thousand documents a second.

A notification is not stored: a node that has no connection when it is sent does not get it.
Each node gets the notifications about all sessions of its tenant.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anyio.abc import ObjectReceiveStream

from refold.cluster.database import Database
from refold.cluster.followers import Followers

_LIVE_CHANNEL = "live"


class NotifyBus:
    """Implements `Bus`. Documents are received while `run` runs."""

    def __init__(self, database: Database) -> None:
        self._database, self._followers = database, Followers()

    async def run(self) -> None:
        """Receive documents until this is cancelled."""
        async with self._database.listen(_LIVE_CHANNEL) as notifications:
            async for notification in notifications:
                session, _, document = notification.payload.partition(" ")
                self._followers.pass_on(session, document.encode())

    async def publish(self, session: str, document: bytes) -> None:
        query = "select pg_notify(refold.channel($1), $2)"
        payload = f"{session} {document.decode()}"
        await self._database.run(lambda db: db.execute(query, _LIVE_CHANNEL, payload))

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[ObjectReceiveStream[bytes]]:
        with self._followers.receive(session) as documents:
            yield documents
