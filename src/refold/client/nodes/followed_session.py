"""Shows a web node a session that a worker runs.

Orders to the session are stored in the database, and its lines are read from there. The bus
notifies the node of new lines, and carries the documents that are not recorded. It may lose
documents, so the journal is also read after some seconds of silence.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from msgspec.structs import replace

from refold.app.app import App
from refold.client.followed_journal import FollowedJournal
from refold.client.host_ports import Bus, Orders
from refold.client.launch import Launch, OpenedSession
from refold.client.nodes.live_documents import HELLO_DOCUMENT, DocumentHead, ReceivedText
from refold.client.nodes.services import Services
from refold.client.order_sink import OrderResult
from refold.client.protocol import Order
from refold.client.remote_session import LIVE_TYPES, RemoteSink
from refold.client.session import Session
from refold.errors import BadInput, Corrupt, JournalError
from refold.session.recorder import acting_as, acting_person
from refold.views.stream_json.documents import Error
from refold.views.stream_json.live_documents import LiveDocument

SILENCE_SECONDS = 2.0  # after which the journal is read if no document arrives
_JOURNAL_CHANGED = "lines of this session were lost with its database: connect again"


class FollowedSink(RemoteSink):
    """Places orders in the database. `report_problem` is called with an error of the worker."""

    sees_files = False  # the worker has them

    def __init__(
        self, id_: str, orders: Orders, bus: Bus, journal: FollowedJournal, app: App
    ) -> None:
        super().__init__(journal, app)
        self._id = id_
        self._orders = orders
        self._bus = bus
        self._texts = ReceivedText()
        self.report_problem: Callable[[Error], None] = _ignore

    async def _exchange(self, order: Order) -> OrderResult:
        """Place the order for a worker. Wait for its result, and read the new lines."""
        if self.end_reason:
            raise BadInput(self.end_reason)
        person = acting_person() or order.by
        placed = await self._orders.put(self._id, replace(order, by=person))
        result = await placed.result()
        await self._read_lines()
        return result

    async def follow(self) -> None:
        """Follow the session until it is closed, or its journal was replaced."""
        async with self._bus.follow(self._id) as documents:
            with suppress(JournalError):
                await self._bus.publish(self._id, HELLO_DOCUMENT)
            while not self._journal.ended:
                document = b""  # after a silence, only the journal is read
                with anyio.move_on_after(SILENCE_SECONDS):
                    document = await documents.receive()
                with suppress(JournalError):  # tried again after the silence
                    await self._handle(document)
                self._wake()

    async def _handle(self, document: bytes) -> None:
        """Handle a document from the bus; b"" means that none arrived, so only read the
        journal.
        """
        if not document:
            await self._read_lines()
            return
        head = msgspec.json.decode(document, type=DocumentHead)
        try:
            if head.type == "error":
                self.report_problem(msgspec.json.decode(document, type=Error))
            elif head.type in LIVE_TYPES:
                live = msgspec.json.decode(document, type=LiveDocument)
                if (part := self._texts.new_part(live)) is not None:
                    await self.receive(msgspec.json.encode(part), head.type)
            else:
                await self.receive(document, head.type)
        except Corrupt:
            self._journal.end(_JOURNAL_CHANGED)

    async def _read_lines(self) -> None:
        """Add the new events of the journal to the state of the session."""
        try:
            view = await self._journal.follow()
        except Corrupt:
            self._journal.end(_JOURNAL_CHANGED)
            return
        if not view.turn.seq:
            self._texts.clear()


@asynccontextmanager
async def attach_through_database(
    launch: Launch, id_: str, services: Services, person: str
) -> AsyncGenerator[Session]:
    """Join the session with this full id, which workers run, as a person of this machine."""
    runner = services.runner()
    bus = services.bus("web")
    orders = services.orders(runner)
    async with anyio.create_task_group() as group:
        group.start_soon(orders.run)
        group.start_soon(bus.run)
        with acting_as(person):
            async with follow_session(launch, id_, orders, bus) as (session, _):
                yield session
        group.cancel_scope.cancel()


@asynccontextmanager
async def follow_session(
    launch: Launch, id_: str, orders: Orders, bus: Bus
) -> AsyncGenerator[tuple[Session, FollowedSink]]:
    """Open the session with this full id, which workers run.

    Yield its handle, and the sink to which the handle sends orders.
    """
    journal = FollowedJournal(launch.app.home.store(id_))
    sink = FollowedSink(id_, orders, bus, journal, launch.app)
    await journal.follow()
    async with anyio.create_task_group() as group:
        group.start_soon(sink.follow)
        opened = OpenedSession(launch.app, sink.engine)
        yield Session(launch, opened, orders=sink), sink
        group.cancel_scope.cancel()


def _ignore(_: Error) -> None:
    pass
