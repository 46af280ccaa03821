"""A `Bus` of the notifications of PostgreSQL, for up to about a thousand documents a second.

A notification is not stored: one that is sent while a node has no connection is lost. All nodes get
those of all sessions of their tenant.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectSendStream

from refold.cluster.database import Database

_LIVE_CHANNEL = "live"  # a channel
_MAX_WAITING = 1_000  # documents for one follower; further ones are lost


class NotifyBus:
    """Implements `Bus`. Documents are received while it runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers = dict[str, set[MemoryObjectSendStream[bytes]]]()

    async def run(self) -> None:
        """Receive documents until this is cancelled."""
        async with self._database.listen(_LIVE_CHANNEL) as notifications:
            async for notification in notifications:
                session, _, document = notification.payload.partition(" ")
                for follower in self._followers.get(session, ()):
                    with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                        follower.send_nowait(document.encode())

    async def publish(self, session: str, document: bytes) -> None:
        query = "select pg_notify(refold.channel($1), $2)"
        payload = f"{session} {document.decode()}"
        await self._database.run(lambda db: db.execute(query, _LIVE_CHANNEL, payload))

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[ObjectReceiveStream[bytes]]:
        send, receive = anyio.create_memory_object_stream[bytes](_MAX_WAITING)
        followers = self._followers.setdefault(session, set())
        followers.add(send)
        try:
            async with receive:
                yield receive
        finally:
            send.close()
            followers.discard(send)
            if not followers:
                self._followers.pop(session, None)
