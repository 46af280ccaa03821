"""A `Bus` on NATS: live documents of a session reach only the nodes that follow it.

Nothing is stored: a document that is sent while a node has no connection is lost for that
node. Workers and web nodes send on different subjects. So NATS can prevent the login of a
web node from sending text as if a model had written it.

Needs `refold[cluster]`.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.abc import ObjectReceiveStream
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import StaleConnectionError

from refold.cluster.followers import Followers
from refold.cluster.outage import Outage
from refold.errors import BadInput

Role: TypeAlias = Literal["worker", "web"]
URL_SCHEMES = ("nats://", "tls://")
_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 2
_FLUSH_SECONDS = 1
_MAX_SCHEME_CHARS = 30  # in an error
_CLOSE_SECONDS = 1.0
_LOSSES = OSError, StaleConnectionError
_MAX_PENDING_BYTES = 0  # a document that cannot be sent at once is lost


class NatsBus:
    """Implements `Bus` for a worker or a web node. Documents are carried while `run` runs.

    `report` is called with a sentence when the server is lost, when it is back, and when it
    refuses something.
    """

    def __init__(
        self,
        tenant: str,
        url: str,
        role: Role,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not url.startswith(URL_SCHEMES):
            scheme = url.partition("://")[0][:_MAX_SCHEME_CHARS]  # a password may follow
            raise BadInput(
                f"{scheme!r} does not begin the URL of a NATS server: it "
                "must be as in nats://user:password@host:4222"
            )
        self._url, self._report = url, report
        _, _, host_and_port = urlsplit(url).netloc.rpartition("@")  # without the password
        self._place = f"NATS at {host_and_port}"
        self._outage = Outage(self._place, report)
        other_role = "web" if role == "worker" else "worker"
        tenant_hash = sha256(tenant.encode()).hexdigest()[:16]
        # The subjects on which documents are sent and received.
        self._sent = f"refold.{role}.{tenant_hash}"
        self._received = f"refold.{other_role}.{tenant_hash}"
        self._client: Client | None = None
        self._followers = Followers()
        self._subscriptions = dict[str, Subscription]()
        self._problem = ""

    async def run(self) -> None:
        """Connect, and connect again after each outage, until this is cancelled."""
        client = Client()

        async def note_error(error: Exception) -> None:
            self._note_error(error, is_connected=client.is_connected)

        await client.connect(
            self._url,
            error_cb=note_error,
            disconnected_cb=self._note_loss,
            reconnected_cb=self._note_connection,
            connect_timeout=_CONNECT_SECONDS,
            reconnect_time_wait=_RETRY_SECONDS,  # pyright: ignore[reportArgumentType] - it is slept
            max_reconnect_attempts=-1,
            pending_size=_MAX_PENDING_BYTES,
            name="refold",
        )
        self._client = client
        await self._note_connection()
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
            with suppress(NatsError):  # the document is lost
                await self._client.publish(f"{self._sent}.{session}", document)

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[ObjectReceiveStream[bytes]]:
        """Yield the session's documents; the last follower ends the subscription."""
        with self._followers.receive(session) as documents:
            try:
                if self._client is not None:
                    await self._subscribe(self._client, session)
                yield documents
            finally:
                if self._followers.count(session) == 1:  # this is the last one
                    await self._unsubscribe(session)

    async def _subscribe(self, client: Client, session: str) -> None:
        """Subscribe to the documents of the session, and wait until the server has
        confirmed it.
        """
        if session in self._subscriptions:
            return

        async def pass_on(message: Msg) -> None:
            self._followers.pass_on(session, message.data)

        # The client subscribes again when it connects again.
        with suppress(NatsError, TimeoutError):
            subject = f"{self._received}.{session}"
            subscription = await client.subscribe(subject, cb=pass_on)  # pyright: ignore[reportUnknownMemberType] - of a future that is not used
            self._subscriptions[session] = subscription
            if client.is_connected:
                await client.flush(_FLUSH_SECONDS)

    async def _unsubscribe(self, session: str) -> None:
        if (subscription := self._subscriptions.pop(session, None)) is not None:
            with suppress(NatsError):
                await subscription.unsubscribe()

    def _note_error(self, error: Exception, *, is_connected: bool) -> None:
        """Note a lost connection as an outage; report another problem, if it is a new one."""
        problem = str(error) or type(error).__name__
        if not is_connected or isinstance(error, _LOSSES):
            self._outage.begin(f"{self._place} cannot be reached: {problem}")
        elif problem != self._problem:
            self._problem = problem
            self._report(f"{self._place}: {problem}")

    async def _note_loss(self) -> None:
        if self._client is not None:  # None: `run` has ended
            self._outage.begin(f"{self._place} cannot be reached: the connection was lost")

    async def _note_connection(self) -> None:
        self._problem = ""
        self._outage.end()
