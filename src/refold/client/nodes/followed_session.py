"""A session that a worker runs, for a web node: its orders go to the database, its lines come from there.

The bus says when there are new lines, and carries what is not recorded. It may lose documents, so the
journal is also read after some seconds of silence.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from msgspec.structs import replace

from refold.app.app import App
from refold.client.host_ports import Bus, Orders
from refold.client.launch import Launch, OpenedSession
from refold.client.nodes.live_documents import HELLO_DOCUMENT, DocumentHead, ReceivedText
from refold.client.order_sink import OrderResult
from refold.client.protocol import Order
from refold.client.remote_session import LIVE_TYPES, FollowedJournal, RemoteSink
from refold.client.session import Session
from refold.errors import BadInput, Corrupt, JournalError
from refold.session.recorder import acting_person
from refold.views.stream_json.documents import Error
from refold.views.stream_json.live_documents import LiveDocument

SILENCE_SECONDS = 2.0  # without a document, after which the journal is read
_JOURNAL_CHANGED = "lines of this session were lost with its database: connect again"


class FollowedSink(RemoteSink):
    """Places orders in the database. `report_problem` is called with an error of the worker."""

    def __init__(
        self, id_: str, orders: Orders, bus: Bus, journal: FollowedJournal, app: App
    ) -> None:
        super().__init__(journal, app)
        self._id, self._orders, self._bus = id_, orders, bus
        self._texts = ReceivedText()
        self.report_problem: Callable[[Error], None] = _ignore

    async def send(self, order: Order) -> OrderResult:
        return await self._exchange(order)  # the files are with the worker

    async def _exchange(self, order: Order) -> OrderResult:
        if self.end_reason:
            raise BadInput(self.end_reason)
        person = acting_person() or order.by
        placed = await self._orders.put(self._id, replace(order, by=person))
        result = await placed.result()
        await self._read_lines()
        return result

    async def follow(self) -> None:
        """Follow the session until its journal ends or is another one."""
        async with self._bus.follow(self._id) as documents:
            with suppress(JournalError):
                await self._bus.publish(self._id, HELLO_DOCUMENT)
            while not self._journal.ended:
                document = b""
                with anyio.move_on_after(SILENCE_SECONDS):
                    document = await documents.receive()
                with suppress(JournalError):  # tried again after the silence
                    await self._take(document)
                self._wake()

    async def _take(self, document: bytes) -> None:
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
        """Fold new lines, even if their notification was lost."""
        try:
            view = await self._journal.follow()
        except Corrupt:
            self._journal.end(_JOURNAL_CHANGED)
            return
        if not view.turn.seq:
            self._texts.clear()


@asynccontextmanager
async def follow_session(
    launch: Launch, id_: str, orders: Orders, bus: Bus
) -> AsyncGenerator[tuple[Session, FollowedSink]]:
    """Open the session with this full id, which workers run."""
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
