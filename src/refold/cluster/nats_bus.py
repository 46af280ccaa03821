"""A `Bus` of NATS: live documents of a session go to the nodes that follow it, and to no others.

Nothing is stored: a document that is sent while a node has no connection is lost. Workers send on
other subjects than web nodes do, so that NATS can refuse what the login of a web node must not send:
the text of a model.

Needs `refold[cluster]`.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Literal, TypeAlias

import anyio
from anyio.abc import ObjectReceiveStream
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from refold.cluster.followers import Followers
from refold.errors import BadInput

Role: TypeAlias = Literal["worker", "web"]
URL_SCHEMES = ("nats://", "tls://")
_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 2
_FLUSH_SECONDS = 1
_CLOSE_SECONDS = 1.0
_MAX_PENDING_BYTES = 0  # what cannot be sent now is lost


class NatsBus:
    """Implements `Bus` for a worker or a web node. Documents are carried while it runs.

    `report` is called with what is wrong with the connection.
    """

    def __init__(
        self,
        tenant: str,
        url: str,
        role: Role,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not url.startswith(URL_SCHEMES):
            raise BadInput(
                f"{url.partition('://')[0][:30]!r} does not begin the URL of a NATS server: it "
                "must be as in nats://user:password@host:4222"
            )
        self._url, self._report = url, report
        other_role = "web" if role == "worker" else "worker"
        place = sha256(tenant.encode()).hexdigest()[:16]
        self._sent, self._received = (
            f"refold.{role}.{place}",
            f"refold.{other_role}.{place}",
        )
        self._client: Client | None = None
        self._followers = Followers()
        self._subscriptions = dict[str, Subscription]()
        self._problem = ""

    async def run(self) -> None:
        """Connect, and connect again after each outage, until this is cancelled."""
        client = Client()
        await client.connect(
            self._url,
            error_cb=self._note_error,
            reconnected_cb=self._note_connection,
            connect_timeout=_CONNECT_SECONDS,
            reconnect_time_wait=_RETRY_SECONDS,  # pyright: ignore[reportArgumentType] - it is slept
            max_reconnect_attempts=-1,
            pending_size=_MAX_PENDING_BYTES,
            name="refold",
        )
        self._client = client
        try:
            for session in self._followers.sessions:
                await self._subscribe(client, session)
            await anyio.sleep_forever()
        finally:
            self._client = None
            self._subscriptions.clear()
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await client.close()

    async def publish(self, session: str, document: bytes) -> None:
        if self._client is not None and self._client.is_connected:
            with suppress(NatsError):  # lost
                await self._client.publish(f"{self._sent}.{session}", document)

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[ObjectReceiveStream[bytes]]:
        with self._followers.receive(session) as documents:
            try:
                if self._client is not None:
                    await self._subscribe(self._client, session)
                yield documents
            finally:
                if self._followers.count(session) == 1:
                    await self._unsubscribe(session)

    async def _subscribe(self, client: Client, session: str) -> None:
        """Receive the documents of the session, from the time that the server has confirmed
        the subscription.
        """
        if session in self._subscriptions:
            return

        async def pass_on(message: Msg) -> None:
            self._followers.pass_on(session, message.data)

        with suppress(NatsError, TimeoutError):  # it is sent again with the next connection
            subject = f"{self._received}.{session}"
            subscription = await client.subscribe(subject, cb=pass_on)  # pyright: ignore[reportUnknownMemberType] - of a future that is not used
            self._subscriptions[session] = subscription
            if client.is_connected:
                await client.flush(_FLUSH_SECONDS)

    async def _unsubscribe(self, session: str) -> None:
        if (subscription := self._subscriptions.pop(session, None)) is not None:
            with suppress(NatsError):
                await subscription.unsubscribe()

    async def _note_error(self, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        if problem != self._problem:
            self._problem = problem
            self._report(f"NATS: {problem}")

    async def _note_connection(self) -> None:
        self._problem = ""
