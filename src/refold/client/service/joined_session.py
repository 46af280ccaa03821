"""Joins a session of a service through the address of its web nodes.

Orders and documents go over a WebSocket as from a page, with the rights of the token's
person. Lines of the journal are read over REST, and their hash chain is checked. If a web
node dies, another one at the address takes its place: reading continues after the last
line, and orders without an answer are sent again.
"""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.client.followed_journal import FollowedJournal
from refold.client.launch import Launch, OpenedSession
from refold.client.nodes.live_documents import ReceivedText
from refold.client.order_sink import DONE_ONCE_ORDERS, OrderResult
from refold.client.protocol import Order
from refold.client.remote_session import LIVE_TYPES, ConversingSink
from refold.client.service.service_client import ServiceClient
from refold.client.service.web_socket import Lost, WebSocket
from refold.client.session import Session
from refold.errors import BadInput, Corrupt, Disconnected, JournalError, WrongFormat, first
from refold.journal.store.port import Lease, NoViews, Views
from refold.session.recorder import acting_as
from refold.values.live import Waiting
from refold.views.stream_json.documents import Error
from refold.views.stream_json.live_documents import LiveDocument

# The pause between two attempts to connect is doubled each time, up to the maximum.
_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 2.0
_ORDER_SECONDS = 10.0  # for which an order waits while the service is away
_CHECK_SECONDS = 1.0  # between two checks whether an order waits too long
_READ_ONLY = "the journal of this session is with a service, whose workers write it"
_JOURNAL_CHANGED = "lines of this session were lost with its database: attach again"
_CONNECTED = "connected to {origin} again"
_MAY_BE_DONE = (
    "the connection was lost before {origin} said whether this was carried out: look, and order it "
    "again if it was not"
)


class ServiceBlobs:
    """Implements `Blobs` for reading the blobs of a session of a service."""

    def __init__(self, client: ServiceClient, session: str) -> None:
        self._client = client
        self._session = session

    async def put(self, blob: bytes) -> str:
        raise JournalError(_READ_ONLY)

    async def get(self, name: str) -> bytes:
        return await self._client.blob(self._session, name)


class ServiceStore:
    """Implements `Store` for reading the lines of a session of a service, each fetched once."""

    def __init__(self, client: ServiceClient, session: str) -> None:
        self._client = client
        self._session = session
        self._lines = list[bytes]()
        self._lock = anyio.Lock()
        self.blobs = ServiceBlobs(client, session)
        self.views: Views = NoViews()

    async def read_claim(self) -> int:
        return 0  # none: this process takes no claim

    async def lease(self, claim: int = 0) -> Lease:
        raise JournalError(_READ_ONLY)

    async def release(self) -> None:
        """Do nothing: no lock is taken."""

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        raise JournalError(_READ_ONLY)

    async def keep(self) -> None:
        """Do nothing: nothing is written."""

    async def read(self, after: int = 0) -> Sequence[bytes]:
        async with self._lock:
            self._lines += await self._client.lines(self._session, len(self._lines))
        return self._lines[after:]


class _OpenOrder(Struct):
    """An order without an answer. If it `was_sent`, a worker may have taken it."""

    order: Order
    data: bytes
    was_sent: bool = False


class ServiceSink(ConversingSink):
    """Sends orders over a WebSocket, which is opened again when it is lost.

    `report` is called with a sentence when the service cannot be reached, and when it can
    again.
    """

    sees_files = False  # the worker has them

    def __init__(
        self, id_: str, client: ServiceClient, journal: FollowedJournal, app: App
    ) -> None:
        super().__init__(journal, app)
        self._id = id_
        self._client = client
        self._socket: WebSocket | None = None
        self._texts = ReceivedText()
        self._open_orders = dict[str, _OpenOrder]()  # without an answer, by client key
        self._away_since: float | None = None
        self.report: Callable[[str], None] = _ignore

    async def follow(self) -> None:
        """Follow the session until it ends, or until the service refuses it.

        Raises `Disconnected` if the service cannot be reached at the beginning.
        """
        pause = _MIN_PAUSE_SECONDS
        while not self.end_reason:
            try:
                async with self._client.follow(self._id) as socket:
                    pause = _MIN_PAUSE_SECONDS
                    await self._converse(socket)
            except (WrongFormat, BadInput) as error:
                self._journal.end(str(error))
            except Corrupt:
                self._journal.end(_JOURNAL_CHANGED)
            except JournalError as error:
                if not self.joined.is_set():
                    raise
                self._note_outage(str(error), pause)
            finally:
                self._socket = None
            if self.end_reason:
                self.joined.set()
            self._wake()
            await anyio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def receive(self, line: bytes, kind: str) -> None:
        """Handle a document of the service.

        A piece of live text may be sent again after a reconnection; the part that was received
        before is dropped.
        """
        if kind in LIVE_TYPES:
            live = msgspec.json.decode(line, type=LiveDocument)
            new_part = self._texts.new_part(live)
            if new_part is None:
                return
            line = msgspec.json.encode(new_part)
        await super().receive(line, kind)
        turn_is_running = bool(self._journal.view.turn.seq)
        if not turn_is_running:
            self._texts.clear()

    async def _converse(self, socket: WebSocket) -> None:
        """Send the orders without an answer, then take documents until the connection ends.

        An order that must not be carried out twice is not sent twice: it gets an error.
        """
        self._socket = socket
        await self._journal.follow()  # it may have the events of some of the orders
        for key, waiting in tuple(self._open_orders.items()):
            if waiting.was_sent and isinstance(waiting.order, DONE_ONCE_ORDERS):
                reason = _MAY_BE_DONE.format(origin=self._client.origin)
                self._answers[key] = Error(kind="BadInput", reason=reason)
            else:
                await self._try_to_send(waiting)
        async for message in socket.messages():
            await self._take_document(message)
            if self._away_since is not None:
                self._away_since = None
                self._announce_return()

    @property
    def rejoin_command(self) -> str:
        return f'refold attach "{self._client.origin}/?c={self._id}"'

    async def _exchange(self, order: Order) -> OrderResult:
        """Send an order, again after a lost connection if necessary; return its result."""
        key = order.client_key or os.urandom(8).hex()
        try:
            return await super()._exchange(replace(order, client_key=key))
        finally:
            self._open_orders.pop(key, None)

    async def _send_order(self, order: Order, data: bytes) -> None:
        waiting = _OpenOrder(order, data)
        self._open_orders[order.client_key] = waiting
        await self._try_to_send(waiting)

    async def _try_to_send(self, waiting: _OpenOrder) -> None:
        """Send an order. If the connection is lost, `follow` sends it again after
        reconnecting.
        """
        if self._socket is not None:
            waiting.was_sent = True
            with suppress(Lost):
                await self._socket.send(waiting.data)

    async def _wait_for_answer(self, key: str) -> None:
        """Wait for the next document, for at most `_CHECK_SECONDS`.

        Raises `Disconnected` if the service has been away for too long. `key` is the client key
        of the order that waits.
        """
        with anyio.move_on_after(_CHECK_SECONDS):
            await self._news.wait()
        if self._away_since is None:
            return
        seconds_away = anyio.current_time() - self._away_since
        if seconds_away < _ORDER_SECONDS:
            return
        origin = self._client.origin
        if self._open_orders[key].was_sent:
            raise Disconnected(_MAY_BE_DONE.format(origin=origin))
        raise Disconnected(f"{origin} cannot be reached now, so this was not sent")

    def _note_outage(self, reason: str, pause: float) -> None:
        """Report the outage when it begins, and show the pause before the next attempt."""
        if self._away_since is None:
            self._away_since = anyio.current_time()
            self.report(
                f"{reason}; what runs there continues, and this terminal tries again"
            )
        self._journal.hub.publish_live(Waiting(pause, reason))

    def _announce_return(self) -> None:
        sentence = _CONNECTED.format(origin=self._client.origin)
        self.report(sentence)
        self._journal.hub.publish_live(Waiting(0.0, sentence))


@asynccontextmanager
async def attach_through_address(
    launch: Launch, client: ServiceClient, id_: str, person: str
) -> AsyncGenerator[tuple[Session, ServiceSink]]:
    """Join the session with this full id, and yield its handle and its sink.

    The orders are recorded as those of the token's person, or of `person` if no people log
    in to the service. Raises `BadInput` if the service refuses, and `Disconnected` if it
    cannot be reached.
    """
    journal = FollowedJournal(ServiceStore(client, id_))
    sink = ServiceSink(id_, client, journal, launch.app)
    await journal.follow()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(sink.follow)
            await sink.joined.wait()
            if sink.end_reason:
                raise BadInput(sink.end_reason)
            with acting_as(person):
                opened = OpenedSession(launch.app, sink.engine)
                yield Session(launch, opened, orders=sink), sink
            group.cancel_scope.cancel()
    except BaseExceptionGroup as error_group:
        raise first(error_group) from error_group


def _ignore(_: str) -> None:
    pass
