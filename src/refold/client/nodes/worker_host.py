"""The sessions of a worker: it has claims on them, runs them, and publishes live documents.

A worker has a session open as long as it has a claim on it. The session is opened and
leased at the beginning of the claim, so that an earlier worker can no longer take its
orders. It is closed at the end of the claim, because other workers may write it from then
on. `session_worker` runs it as in any other process.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from refold.client.deletion import delete_from_worker
from refold.client.elsewhere import find_stand_in
from refold.client.feed import Follower
from refold.client.host import Host, HostPaths, LaunchAt
from refold.client.host_ports import SessionClaim
from refold.client.hosted_conversation import Conversation, OwnConversation, Ports
from refold.client.launch import Launch, OpenedSession
from refold.client.new_conversation import (
    NewConversation,
    ScheduledConversation,
    record_choices,
)
from refold.client.nodes.database_orders import SESSION_DELETED, DatabaseDeletion
from refold.client.nodes.following_files import FollowedFiles, FollowingFiles
from refold.client.nodes.live_documents import HELLO_DOCUMENT, pieces_to_publish
from refold.client.nodes.scheduled_orders import ScheduledOrders
from refold.client.nodes.services import Services
from refold.client.order_sink import OrderResult
from refold.client.protocol import Order, SetDirectory
from refold.client.resume import SessionDirectory
from refold.client.session import Session
from refold.client.session_worker import IDLE_SECONDS
from refold.cluster.worker_rows import WorkerRow
from refold.errors import BadInput, Disconnected, Fenced, JournalError, RefoldError, first
from refold.journal.schedules.schedule_book import ScheduleBook
from refold.journal.session_index import SessionIndex
from refold.session.recorder import Recorder, acting_as

if TYPE_CHECKING:
    from refold.client.nodes.node_metrics import NodeMetrics

_MAX_RESTORES = 8  # at once, so that a session with many files does not delay the others


class PublishedConversation(OwnConversation):
    """A conversation whose live documents are published on a bus. It is closed with its
    claim.
    """

    def __init__(
        self, launch: Launch, opened: OpenedSession, ports: Ports, holder: str
    ) -> None:
        super().__init__(launch, opened, ports, holder)
        assert ports.bus is not None, "a worker has a bus"
        self._bus = ports.bus
        self._published: Follower | None = None  # its documents are published
        self.cut_off = False  # this worker continues the turn of a worker that died
        self._record = opened.engine.record
        self._files: FollowedFiles | None = None  # None: files are not stored
        self._unsubscribe_files: Callable[[], None] = lambda: None  # `_watch_files` sets it

    @property
    def busy(self) -> bool:
        # The base class also counts followers: here the bus is one for the whole time.
        return self.claimed or self.at_work

    def end_work(self) -> None:
        self.close()
        super().end_work()

    def follow_files(self, files: FollowedFiles) -> None:
        """Have the files of this session stored while it is open."""
        self._files = files
        self._watch_files(files, self._record)

    def _watch_files(self, files: FollowedFiles, record: Recorder) -> None:
        """Pass the events of `record` to `files`, and no more events of an earlier recorder."""
        self._unsubscribe_files()
        files.record = record
        self._unsubscribe_files = record.hub.subscribe(files.note)

    async def lease(self, claim: int) -> None:
        await super().lease(claim)
        if self._files is not None:
            await self._files.record_arrival()

    async def finish_claim(self) -> None:
        if self._files is not None:
            await self._files.finish()

    async def carry_out(self, order: Order) -> OrderResult:
        """Carry out an order, and return its result.

        Raises `BadInput` if the order names a directory that clients may not choose.
        """
        if isinstance(order, SetDirectory):  # a directory of the worker's machine
            for directory in filter(None, (order.directory, *order.added)):
                await to_thread.run_sync(self.check_directory, directory)
        result = await super().carry_out(order)
        # The session is open in another directory now.
        if result.opened is not None and self._files is not None:
            self._watch_files(self._files, result.opened.engine.record)
        return result

    async def _run_follower_tasks(self) -> None:
        """Publish the documents, and store the files.

        When a new follower says hello, the text in progress is published again.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(super()._run_follower_tasks)
            group.start_soon(self._publish)
            if self._files is not None:
                group.start_soon(self._files.run)
            async with self._bus.follow(self.session.id) as documents:
                async for document in documents:
                    # `_publish` replaces the follower that is closed here, and the new one is
                    # sent the text in progress first.
                    if document == HELLO_DOCUMENT and self._published is not None:
                        self.leave(self._published)

    async def _publish(self) -> None:
        """Publish the documents of the conversation, as one of its followers.

        If this follower is closed, a new one replaces it, which begins with the text in
        progress.
        """
        while True:
            follower = await self.join(self.feed.position, reads_journal=True)
            self._published = follower
            async for batch in follower.batches():
                for frame in batch:
                    await self._publish_frame(frame)
            # Lets other tasks run, also if nothing above had to wait.
            await anyio.lowlevel.checkpoint()

    async def _publish_frame(self, frame: bytes) -> None:
        for piece in pieces_to_publish(frame):
            with suppress(JournalError):  # a bus may lose documents anyway
                await self._bus.publish(self.session.id, piece)


class WorkerHost(Host):
    """The host of a worker. Use it in `async with host.run()`, and call `drain` at the end.

    With `files`, the files of a session are stored for other workers, and restored from
    them.
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
        self._runner = services.runner(self._release_idle)
        self._bus = services.bus("worker")
        self._orders = services.orders(self._runner)
        self._database = services.database
        self._metrics = services.node_metrics("worker")
        self._row = WorkerRow(self._database, self._count_claimed)
        self._schedules: ScheduledOrders | None = None
        # The claim and start values of sessions whose first worker died before it had
        # recorded all values.
        self._half_begun = dict[str, tuple[int, NewConversation]]()
        # The start values and directories of sessions that are being opened.
        self._starts = dict[str, NewConversation]()
        self._directories = dict[str, SessionDirectory]()
        self._restore_limiter = anyio.CapacityLimiter(_MAX_RESTORES)
        ports = Ports(self._orders, self._runner, bus=self._bus)
        super().__init__(index, paths, launch_at, idle_seconds, ports=ports)

    @asynccontextmanager
    async def run(self, *, drain: bool = False, reason: str = "") -> AsyncGenerator[None]:
        """Run sessions within the block. Turns that run at its end continue on other
        workers.
        """
        async with anyio.create_task_group() as services:
            services.start_soon(self._runner.run)
            services.start_soon(self._bus.run)
            services.start_soon(self._row.run)
            if self._schedules is not None:
                services.start_soon(self._schedules.run)
            if self._metrics is not None:
                services.start_soon(self._metrics.run, lambda: self.conversations)
            async with anyio.create_task_group() as self._group:
                self._group.start_soon(self._worker.run)
                self._group.start_soon(self._watch_conversations)
                self._group.start_soon(self._make_notes)
                yield
                # This process must also end if the database is unavailable.
                self._database.stop_waiting()
                self._group.cancel_scope.cancel()
            services.cancel_scope.cancel()

    def run_schedules(self, book: ScheduleBook) -> None:
        """Have `run` also start the due runs of the schedules in `book`."""
        self._schedules = ScheduledOrders(
            book, self._database, self._orders, self._runner, self.home.new_id
        )

    async def drain(self) -> None:
        """Take no further sessions, and give the present ones to other workers.

        A session is given away when its current step has ended.
        """
        self._row.show_draining()
        await self._runner.drain()

    async def wait_for_drain(self) -> None:
        """Wait until an operator asks this worker to end, by `refold cluster drain`."""
        await self._row.wait_for_drain()

    def _count_claimed(self) -> int:
        """Return the number of conversations on which this worker has a claim."""
        chats = self._conversations.values()
        return sum(isinstance(chat, OwnConversation) and chat.claimed for chat in chats)

    def _release_idle(self) -> None:
        """End claims on idle sessions, because other sessions of the tenant wait for a
        worker.
        """
        self._worker.release_idle()

    async def close(self, id_: str, reason: str = "") -> None:
        """Close a conversation if this worker has no claim on it; otherwise do nothing."""
        chat = self._conversations.get(id_)
        if isinstance(chat, OwnConversation) and not chat.claimed:
            chat.close_to_orders()
            chat.close()
            while self._conversations.get(id_) is chat:
                await self._ended.wait()

    def _find_directory(self, id_: str) -> SessionDirectory:
        """Return the directory in which the session is opened, with missing files restored."""
        if (prepared := self._directories.pop(id_, None)) is not None:
            return prepared
        recorded = self.home.directories(id_).directory
        if (stand_in := find_stand_in(recorded, self.paths.rights.named)) is not None:
            return SessionDirectory(stand_in)
        if self._files is None:
            return super()._find_directory(id_)
        return self._files.restore(self.home, id_, self.paths.directory, self.allows)

    def _add_conversation(
        self, launch: Launch, opened: OpenedSession, holder: str = ""
    ) -> Conversation:
        """Add an open session as a conversation.

        If this worker stores files, the files of the session are stored from now on.
        """
        chat = super()._add_conversation(launch, opened, holder)
        # A workspace elsewhere has its own files, which no worker stores.
        if launch.app.workspace.elsewhere is not None:
            return chat
        directory = launch.app.directory
        if self._files and isinstance(chat, PublishedConversation):
            followed = self._files.follow(chat.session.id, opened.engine.record)
            chat.follow_files(followed)
            recorded = os.path.realpath(chat.session.view.session.own_directory)
            has_same_files = followed.are_complete or recorded == directory
        else:
            has_same_files = directory == os.path.realpath(self.paths.directory)
        # Then an approval that was given on another worker is valid here.
        launch.app.workspace.is_movable = has_same_files
        return chat

    async def _open_conversation(self, id_: str, launch: Launch) -> Conversation:
        """Open a session read-only, and add it to the conversations.

        If a dead worker left the session half begun, record the start values of the session
        first.
        """
        began = time.perf_counter()
        opened = await launch.open_read_only(id_)
        if self._metrics is not None:
            self._metrics.add_opening(time.perf_counter() - began)
        if id_ in self._half_begun:
            claim, start = self._half_begun.pop(id_)
            opened.engine.record.claim = claim
            await record_choices(Session(launch, opened), start)
        return self._add_conversation(launch, opened)

    async def _prepare(self, claim: SessionClaim) -> None:
        """Open the session of the claim, or begin it if it is new, and take its writer
        lock.

        If an order to delete the session waits, delete the session instead. The order to
        begin the session is settled: with the error, if there is one.
        """
        deletion = await self._orders.read_deletion(claim.session)
        if deletion is not None:
            await self._delete_claimed(claim.session, deletion)
            return
        values, begin_order = await self._orders.read_start(claim.session)
        is_begun = begin_order is None
        person = "" if begin_order is None else begin_order.order.by
        try:
            with acting_as(person):
                chat = await self._open_claimed(claim, values, is_begun=is_begun)
            if self._metrics is not None:
                await self._count_failover(self._metrics, chat.session)
            await chat.lease(claim.number)
        except Exception as raised:  # a bug with one session must not end the others
            opened = self._conversations.get(claim.session)
            if opened is not None:
                opened.close()
            error = raised if isinstance(raised, RefoldError) else _to_error(raised)
            # After these two errors, another worker can still begin the session.
            can_begin_elsewhere = isinstance(error, Disconnected | Fenced)
            if begin_order is not None and not can_begin_elsewhere:
                await begin_order.settle(error)
            raise error from raised
        if begin_order is not None:
            await begin_order.settle(OrderResult(changed=True))

    async def _count_failover(self, metrics: "NodeMetrics", session: Session) -> None:
        if session.view.turn.seq and await metrics.read_failover(session.id):
            metrics.add_failover()

    async def _delete_claimed(self, id_: str, deletion: DatabaseDeletion) -> None:
        """Delete the session for good. Always raises an error: nothing is left to run."""
        while id_ in self._conversations:  # the end of an earlier claim
            await self._ended.wait()
        checkpoints = self.paths.checkpoints
        try:
            await to_thread.run_sync(delete_from_worker, self.home, checkpoints, id_)
        except RefoldError as error:
            if not isinstance(error, Disconnected):
                await deletion.fail(error)
            raise
        raise BadInput(SESSION_DELETED)  # all other orders are refused with this

    async def _open_claimed(
        self, claim: SessionClaim, values: bytes, *, is_begun: bool
    ) -> OwnConversation:
        """Open the session of a claim; begin it if it has no journal yet.

        `values` are its stored start values, as JSON; b"" if it has none. `is_begun` says
        that all of them are recorded in its journal.
        """
        id_ = claim.session
        # An earlier claim on the same session may still be ending.
        while id_ in self._conversations:
            await self._ended.wait()
        has_journal = await to_thread.run_sync(self.home.exists, id_)
        start = msgspec.json.decode(values or b"{}", type=ScheduledConversation)
        if values and not has_journal:
            chat = await self._begin(start, id_, claim.number)
        else:
            if values and not is_begun:
                # The worker that began the session died before all values were recorded.
                self._half_begun[id_] = claim.number, start
            # The values that are not recorded in the journal.
            self._starts[id_] = ScheduledConversation(
                preset=start.preset,
                system_prompt=start.system_prompt,
                log_requests=start.log_requests,
                schedule=start.schedule,
            )
            if self._files is not None:
                # The limiter lets few restore their files at a time: they may be large.
                self._directories[id_] = await to_thread.run_sync(
                    self._find_directory, id_, limiter=self._restore_limiter
                )
            chat = await self.open(id_)
        assert isinstance(chat, OwnConversation), "a worker joins no other process"
        return chat

    def _load_start_values(self, id_: str) -> NewConversation:
        return self._starts.pop(id_, None) or super()._load_start_values(id_)

    def _directory(self, conversation: NewConversation) -> Path:
        """Return the directory of a new conversation.

        A run of a schedule that was added on another machine gets the worker's directory.
        """
        is_run = isinstance(conversation, ScheduledConversation) and conversation.schedule
        if is_run and not os.path.isdir(conversation.workspace):
            named = self.paths.rights.named
            return find_stand_in(conversation.workspace, named) or self.paths.directory
        return super()._directory(conversation)

    async def _check_holder(self, id_: str, chat: OwnConversation) -> None:
        """Do nothing: the claim decides which process writes the session."""


def _to_error(error: Exception) -> RefoldError:
    return RefoldError(f"refold itself failed: {type(error).__name__}: {first(error)}")
