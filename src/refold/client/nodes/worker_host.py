"""The sessions of a worker: it has claims on them, runs them, and publishes what is not recorded.

A session is open here for as long as this worker has a claim on it. It is opened and leased at the
beginning of the claim, so that an earlier worker can no longer take its orders, and closed at its end,
as other workers may write from then on. `session_worker` runs it as in any other process.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio import to_thread

from refold.client.feed import Follower
from refold.client.host import Host, HostPaths, LaunchAt
from refold.client.host_ports import SessionClaim
from refold.client.hosted_conversation import Conversation, OwnConversation, Ports
from refold.client.launch import Launch, OpenedSession
from refold.client.new_conversation import NewConversation, record_choices
from refold.client.nodes.following_files import FollowedFiles, FollowingFiles
from refold.client.nodes.live_documents import HELLO_DOCUMENT, pieces_to_publish
from refold.client.nodes.services import Services
from refold.client.order_sink import OrderResult
from refold.client.protocol import Order, SetDirectory
from refold.client.resume import SessionDirectory
from refold.client.session import Session
from refold.client.session_worker import IDLE_SECONDS
from refold.cluster.worker_rows import WorkerRow
from refold.errors import Disconnected, Fenced, JournalError, RefoldError, first
from refold.journal.session_index import SessionIndex
from refold.session.recorder import Recorder, acting_as


class PublishedConversation(OwnConversation):
    """A conversation whose live documents go to a bus. It ends with its claim."""

    def __init__(
        self, launch: Launch, opened: OpenedSession, ports: Ports, holder: str
    ) -> None:
        super().__init__(launch, opened, ports, holder)
        assert ports.bus is not None, "a worker has a bus"
        self._bus = ports.bus
        self._published: Follower | None = None
        self.cut_off = False  # a turn whose worker died continues here
        self._record = opened.engine.record
        self._files: FollowedFiles | None = None
        self._forget_files: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        return self.claimed or self.at_work  # what follows it is the bus

    def end_work(self) -> None:
        self.close()
        super().end_work()

    def follow_files(self, files: FollowedFiles) -> None:
        """Have the files of this session stored while it is open."""
        self._files = files
        self._watch_files(files, self._record)

    def _watch_files(self, files: FollowedFiles, record: Recorder) -> None:
        self._forget_files()
        files.record = record
        self._forget_files = record.hub.subscribe(files.note)

    async def lease(self, claim: int) -> None:
        await super().lease(claim)
        if self._files is not None:
            await self._files.arrive()

    async def finish_claim(self) -> None:
        if self._files is not None:
            await self._files.finish()

    async def carry_out(self, order: Order) -> OrderResult:
        if isinstance(order, SetDirectory):  # a directory of this machine
            for directory in filter(None, (order.directory, *order.added)):
                await to_thread.run_sync(self.check_directory, directory)
        result = await super().carry_out(order)
        if result.opened is not None and self._files is not None:  # in another directory
            self._watch_files(self._files, result.opened.engine.record)
        return result

    async def _run_follower_tasks(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(super()._run_follower_tasks)
            group.start_soon(self._publish)
            if self._files is not None:
                group.start_soon(self._files.run)
            async with self._bus.follow(self.session.id) as documents:
                async for document in documents:
                    if document == HELLO_DOCUMENT and self._published is not None:
                        self.leave(self._published)  # its sender gets the text in progress

    async def _publish(self) -> None:
        """Publish what each follower gets, and follow again after being cut off."""
        while True:
            follower = await self.join(self.feed.position, reads_journal=True)
            self._published = follower
            async for batch in follower.batches():
                for frame in batch:
                    for piece in pieces_to_publish(frame):
                        with suppress(JournalError):  # lost, as on any bus
                            await self._bus.publish(self.session.id, piece)
            await anyio.lowlevel.checkpoint()


class WorkerHost(Host):
    """Use it in `async with host.run()`, and `drain` it at the end.

    With `files`, those of a session follow it from worker to worker.
    """

    _conversation_type = PublishedConversation

    def __init__(
        self,
        services: Services,
        index: SessionIndex,
        paths: HostPaths,
        launch_at: LaunchAt,
        idle_seconds: float = IDLE_SECONDS,
        *,
        files: FollowingFiles | None = None,
    ) -> None:
        self._files = files
        self._runner, self._bus = (
            services.runner(self._release_idle),
            services.bus("worker"),
        )
        self._orders, self._database = services.orders(self._runner), services.database
        self._row = WorkerRow(self._database, self._count_claimed)
        self._half_begun = dict[str, tuple[int, NewConversation]]()
        ports = Ports(self._orders, self._runner, bus=self._bus)
        super().__init__(index, paths, launch_at, idle_seconds, ports=ports)

    @asynccontextmanager
    async def run(self, *, drain: bool = False, reason: str = "") -> AsyncGenerator[None]:
        """Run sessions within the block. Turns that still run at its end continue elsewhere."""
        async with anyio.create_task_group() as queue:
            queue.start_soon(self._runner.run)
            queue.start_soon(self._bus.run)
            queue.start_soon(self._row.run)
            async with anyio.create_task_group() as self._group:
                self._group.start_soon(self._worker.run)
                self._group.start_soon(self._watch_conversations)
                self._group.start_soon(self._make_notes)
                yield
                self._database.stop_waiting()  # if it is away, this process ends all the same
                self._group.cancel_scope.cancel()
            queue.cancel_scope.cancel()

    async def drain(self) -> None:
        """Take no further sessions, and give those that there are to others after their step."""
        self._row.show_draining()
        await self._runner.drain()

    async def wait_for_drain(self) -> None:
        """Wait until `refold cluster drain` names this worker."""
        await self._row.wait_for_drain()

    def _count_claimed(self) -> int:
        chats = self._there.values()
        return sum(isinstance(chat, OwnConversation) and chat.claimed for chat in chats)

    def _release_idle(self) -> None:
        """Release idle sessions, because other sessions of the tenant wait."""
        self._worker.release_idle()

    async def close(self, id_: str, reason: str = "") -> None:
        """Close a conversation that this worker has no claim on."""
        chat = self._there.get(id_)
        if isinstance(chat, OwnConversation) and not chat.claimed:
            chat.close_to_orders()
            chat.close()
            while self._there.get(id_) is chat:
                await self._ended.wait()

    def _find_directory(self, id_: str) -> SessionDirectory:
        """Where the session is opened. Its files are restored there if they are not here."""
        if self._files is None:
            return super()._find_directory(id_)
        return self._files.bring(self.home, id_, self.paths.directory, self.allows)

    def _begin(
        self, launch: Launch, opened: OpenedSession, holder: str = ""
    ) -> Conversation:
        chat = super()._begin(launch, opened, holder)
        is_here = launch.app.workspace.elsewhere is None  # a place brings its own home
        if self._files and is_here and isinstance(chat, PublishedConversation):
            chat.follow_files(self._files.follow(chat.session.id, opened.engine.record))
        return chat

    async def _open_there(self, id_: str, launch: Launch) -> Conversation:
        opened = await launch.open_read_only(id_)
        if id_ in self._half_begun:
            opened.engine.record.claim, start = self._half_begun.pop(id_)
            await record_choices(Session(launch, opened), start)
        return self._begin(launch, opened)

    async def _prepare(self, claim: SessionClaim) -> None:
        """Open the session of the claim, begin it if it is new, and lease it."""
        values, begin_order = await self._orders.read_start(claim.session)
        try:
            with acting_as(begin_order.order.by if begin_order is not None else ""):
                chat = await self._open_claimed(claim, values, is_begun=begin_order is None)
            await chat.lease(claim.number)
        except Exception as raised:  # a bug with one session must not end the others
            if (opened := self._there.get(claim.session)) is not None:
                opened.close()
            error = raised if isinstance(raised, RefoldError) else _to_error(raised)
            if begin_order is not None and not isinstance(error, Disconnected | Fenced):
                await begin_order.settle(error)
            raise error from raised
        if begin_order is not None:
            await begin_order.settle(OrderResult(True))

    async def _open_claimed(
        self, claim: SessionClaim, values: bytes, *, is_begun: bool
    ) -> OwnConversation:
        id_ = claim.session
        while id_ in self._there:  # the end of an earlier claim, whose turn may end
            await self._ended.wait()
        is_there = await to_thread.run_sync(self.home.exists, id_)
        if not is_there and values:
            start = msgspec.json.decode(values, type=NewConversation)
            chat = await self.create(start, id_, claim.number)
        else:
            if values and not is_begun:  # its worker died before all of that was recorded
                start = msgspec.json.decode(values, type=NewConversation)
                self._half_begun[id_] = claim.number, start
            chat = await self.open(id_)
        assert isinstance(chat, OwnConversation), "a worker joins no other process"
        return chat

    async def _check_holder(self, id_: str, chat: OwnConversation) -> None:
        """Do nothing: the claim says who writes it."""


def _to_error(error: Exception) -> RefoldError:
    return RefoldError(f"refold itself failed: {type(error).__name__}: {first(error)}")
