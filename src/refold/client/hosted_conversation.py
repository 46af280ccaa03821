"""A session that a host has open for its clients.

`OwnConversation` places the orders of all its clients in `Orders`, and follows the session;
the `session_worker` runs it. `JoinedConversation` is open in another process. `host` has them all.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from refold.client.dispatch import Dispatcher
from refold.client.feed import Follower
from refold.client.host_ports import Bus, Orders, Runner
from refold.client.launch import Launch, OpenedSession
from refold.client.order_sink import OrderResult
from refold.client.protocol import Order, SetDirectory
from refold.client.session import Session
from refold.client.session_socket import serve_clients
from refold.client.session_worker import CLOSED
from refold.client.shared_session import SharedSession
from refold.errors import BadInput, RefoldError, first
from refold.journal.events.kinds import Entry
from refold.session.recorder import act_as_owner
from refold.views.stream_json.documents import Error
from refold.views.stream_json.snapshot import Status


class Ports(Struct, frozen=True):
    """Where orders are placed, and what decides who runs a session."""

    orders: Orders
    runner: Runner
    is_joinable: bool = False  # other processes join through a socket
    bus: Bus | None = None  # where live documents go


class Conversation(SharedSession):
    """A conversation open here. `holder` is the other process that writes it, or ""."""

    def __init__(self, session: Session, launch: Launch, holder: str) -> None:
        self._closed, self._stirred = anyio.Event(), anyio.Event()
        super().__init__(session, self._signal_work)
        self.launch, self.holder = launch, holder
        self.idle_since = anyio.current_time()
        self.closing = False  # it takes no orders while it closes
        # Raises `BadInput` for a directory that clients may not choose.
        self.check_directory: Callable[[str], None] = _allow_any

    @property
    def busy(self) -> bool:
        """Whether a client follows the conversation, or something runs in it here."""
        return bool(self.feed.followers)

    def status(self) -> Status:
        return replace(super().status(), held_by=self.holder)

    async def notices(self) -> Sequence[str]:
        """Notices that the user must see once."""
        return await to_thread.run_sync(self.session.notices)

    async def run(self) -> None:
        """Follow the session for its clients, until it is closed."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.feed.run)
                async with anyio.create_task_group() as meanwhile:
                    meanwhile.start_soon(self._run_follower_tasks)
                    await self._closed.wait()
                    meanwhile.cancel_scope.cancel()
                self.feed.close()  # `feed.run` ends then, and disconnects the clients
        finally:
            with anyio.CancelScope(shield=True):
                await self.launch.aclose()

    async def execute(self, order: Order, follower: Follower) -> bool:
        if isinstance(order, SetDirectory):
            for directory in filter(None, (order.directory, *order.added)):
                await to_thread.run_sync(self.check_directory, directory)
        return await super().execute(order, follower)

    async def wait_closed(self) -> None:
        """Wait until the conversation is closed here."""
        await self._closed.wait()

    def close(self) -> None:
        """End `run`. What another process runs continues."""
        self.closing = True
        self._closed.set()

    def report(self, error: Exception) -> None:
        """Report an error of the run to every client. After a bug it is closed."""
        if isinstance(error, RefoldError):
            self.report_problem(error)
            return
        reason = f"refold itself failed: {type(error).__name__}: {first(error)}"
        self.feed.broadcast(Error(kind="failure", reason=reason))
        self.close()

    async def _run_follower_tasks(self) -> None:
        """Tasks that run beside the feed while clients follow the conversation."""

    def _signal_work(self) -> None:
        self._stirred.set()


class OwnConversation(Conversation):
    """A conversation whose turns a worker of this process runs. Following takes no lock."""

    def __init__(
        self, launch: Launch, opened: OpenedSession, ports: Ports, holder: str
    ) -> None:
        self._sink = _PlacingSink(launch, opened, ports)
        super().__init__(Session(launch, opened, orders=self._sink), launch, holder)
        # Messages that wait were sent before: opening it begins no turn.
        self.cut_off = not (holder or self.session.idle or self.session.has_lease)
        self.claimed, self._runner = False, ports.runner
        # Whether it was written here: then notes may be made of it.
        self.was_run = self.session.has_lease
        self._holds, self._is_joinable = 0, ports.is_joinable
        self._lease_moved, self._is_listening = anyio.Event(), False
        self._forget = self.session.on_event(self._note_lease)

    @property
    def at_work(self) -> bool:
        """Whether a turn or a background command runs, or the conversation is held open."""
        session = self.session
        in_background = bool(session.view.background.running)
        at_work = session.running or session.compacting or not session.idle or in_background
        return session.has_lease and bool(self._holds or (at_work and not self.cut_off))

    @contextmanager
    def hold(self) -> Generator[None]:
        """Within the block, this process keeps the writer lock once it has written to the
        session.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    @property
    def busy(self) -> bool:
        return super().busy or self.at_work

    def close_to_orders(self) -> None:
        """Refuse orders from now on."""
        self.closing, self._sink.end_reason = True, CLOSED

    async def lease(self, claim: int) -> None:
        """Take the writer lock under this claim, before an event is recorded."""
        await self._sink.lease(claim)

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None:
        """Record that a worker runs the session from now on. `claim` is the number of its claim.

        `leaves_turn` is asked before each step whether another process continues the turn.
        """
        self._sink.begin_work(claim, leaves_turn)
        if not self.was_run:
            self.launch.mark_for_notes(self.session.id)
        self.claimed = self.was_run = True
        self._forget()  # its events may come from another hub now
        self._forget = self.session.on_event(self._note_lease)

    def end_work(self) -> None:
        self.claimed = False
        if not self.closing:  # the claim stays, to refuse late events after another claim
            self._sink.begin_work(0, lambda: False)
        self._note_lease()

    def _note_lease(self, _: Entry | None = None) -> None:
        if self.session.has_lease is not self._is_listening:
            self._lease_moved.set()

    async def _accept_clients(self) -> None:
        """Let other processes join while this one has the writer lock."""
        act_as_owner()  # a page may have opened the conversation
        while True:
            self._lease_moved, self._is_listening = anyio.Event(), self.session.has_lease
            async with anyio.create_task_group() as group:
                if self._is_listening:
                    directory = self.session.journal_directory
                    group.start_soon(
                        serve_clients, directory, os.environ, self._get_shared, self.hold
                    )
                await self._lease_moved.wait()
                group.cancel_scope.cancel()

    def _get_shared(self, _: TaskGroup) -> SharedSession:
        return self

    async def carry_out(self, order: Order) -> OrderResult:
        """Carry out an order; called by the worker."""
        return await self._sink.carry_out(order)

    async def write_title(self) -> None:
        """Have a model write the title, if the session needs one; called by the worker
        between turns.
        """
        await self._sink.write_title()

    async def finish_claim(self) -> None:
        """Wait for what other workers need; called by the worker before a claim ends."""

    async def has_news(self) -> bool:
        """Follow the journal. Return False if no other process has written to it."""
        before = self.session.view.seq
        await self.session.follow()
        return self.session.view.seq > before

    def set_holder(self, holder: str) -> None:
        """Tell the clients if another process now writes it, or no longer does."""
        if holder != self.holder:
            self.holder, self.cut_off = holder, not (holder or self.session.idle)
            self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def _run_follower_tasks(self) -> None:
        async with anyio.create_task_group() as group:
            if self._is_joinable:
                group.start_soon(self._accept_clients)
            while True:
                await self._stirred.wait()
                self._stirred = anyio.Event()
                await self._runner.wake(self.session.id)


class JoinedConversation(Conversation):
    """A conversation open in another process: turns run there, for the clients of both."""

    async def _run_follower_tasks(self) -> None:
        with suppress(BadInput):  # raised when it has ended
            while True:
                await self.session.wait_for_change(after=self.session.view.seq)
        self.close()


class _PlacingSink(Dispatcher):
    """Places orders; the holder of the claim on the session carries them out, and calls
    `step`."""

    def __init__(self, launch: Launch, opened: OpenedSession, ports: Ports) -> None:
        super().__init__(launch, opened)
        self._id, self._ports = opened.engine.view.session.id, ports

    async def send(self, order: Order) -> OrderResult:
        if self.end_reason:
            raise BadInput(self.end_reason)
        placed = await self._ports.orders.put(self._id, order)
        await self._ports.runner.wake(self._id)
        return await placed.result()

    async def carry_out(self, order: Order) -> OrderResult:
        return await super().send(order)

    async def write_title(self) -> None:
        from refold.app.memory_worker import write_title  # not for a start

        await write_title(self._app, self._engine.record)

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None:
        self._engine.record.claim, self._engine.leaves_turn = claim, leaves_turn

    async def lease(self, claim: int) -> None:
        self._engine.record.claim = claim
        self._asked = 0  # what the user was asked may be lost
        await self._engine.record.open()


def _allow_any(_directory: str) -> None:
    pass
