"""The conversations of a host: sessions that are open for its clients.

An `OwnConversation` places the orders of all its clients in `Orders` and follows the
session, while the `session_worker` runs it. A `JoinedConversation` is a session that
another process runs. `host` has all conversations by id.
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
    """What a host uses to have orders carried out: queues, a runner, and a bus if there is
    one.
    """

    orders: Orders
    runner: Runner
    is_joinable: bool = False  # other processes can join through a socket
    bus: Bus | None = None  # carries live documents to other processes


class Conversation(SharedSession):
    """A conversation that is open in this process.

    `holder` describes the other process that writes its session; "" if there is none.
    """

    def __init__(self, session: Session, launch: Launch, holder: str) -> None:
        self._closed = anyio.Event()
        self._has_work = anyio.Event()
        super().__init__(session, self._signal_work)
        self.launch = launch
        self.holder = holder
        self.idle_since = anyio.current_time()
        self.closing = False  # it takes no orders while it closes
        # Raises `BadInput` for a directory that clients may not choose. The host sets it.
        self.check_directory: Callable[[str], None] = _allow_any

    @property
    def busy(self) -> bool:
        """Whether a client follows the conversation, or this process runs something in
        it.
        """
        return bool(self.feed.followers)

    def status(self) -> Status:
        return replace(super().status(), held_by=self.holder)

    async def notices(self) -> Sequence[str]:
        """Return the notices that the user must see once."""
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
        """Carry out an order. Return False if the order had no effect.

        Raises `BadInput` if the order names a directory that clients may not choose.
        """
        if isinstance(order, SetDirectory):
            for directory in filter(None, (order.directory, *order.added)):
                await to_thread.run_sync(self.check_directory, directory)
        return await super().execute(order, follower)

    async def wait_closed(self) -> None:
        """Wait until `close` is called."""
        await self._closed.wait()

    def close(self) -> None:
        """End `run`. If another process runs the session, its turn continues."""
        self.closing = True
        self._closed.set()

    def report(self, error: Exception) -> None:
        """Report an error of a run to every client. After a bug, close the conversation,
        too.
        """
        if isinstance(error, RefoldError):
            self.report_problem(error)
            return
        reason = f"refold itself failed: {type(error).__name__}: {first(error)}"
        self.feed.broadcast(Error(kind="failure", reason=reason))
        self.close()

    async def _run_follower_tasks(self) -> None:
        """Run what is needed in addition to the feed, until the conversation is closed."""

    def _signal_work(self) -> None:
        self._has_work.set()


class OwnConversation(Conversation):
    """A conversation whose turns a worker of this process runs.

    Following it takes no lock.
    """

    def __init__(
        self, launch: Launch, opened: OpenedSession, ports: Ports, holder: str
    ) -> None:
        self._sink = _PlacingSink(launch, opened, ports)
        super().__init__(Session(launch, opened, orders=self._sink), launch, holder)
        # Whether the session has an open turn or waiting messages, but no process runs them.
        # Opening the conversation does not continue them: the next order does.
        is_held = bool(holder) or self.session.has_lease
        self.cut_off = not is_held and not self.session.idle
        self.claimed = False  # whether a worker of this process has a claim on the session
        self._runner = ports.runner
        # Whether this process wrote to the session: then notes may be made of it.
        self.was_run = self.session.has_lease
        self._open_holds = 0
        self._is_joinable = ports.is_joinable
        self._lease_moved = anyio.Event()  # set when the writer lock was taken or released
        self._is_listening = False
        self._unsubscribe = self.session.on_event(self._signal_lease)

    @property
    def at_work(self) -> bool:
        """Whether this process runs a turn or a background command, or is within a block of
        `hold`.
        """
        session = self.session
        if not session.has_lease:
            return False
        if self._open_holds:
            return True
        if self.cut_off:  # what is open continues only with the next order
            return False
        in_turn = session.running or session.compacting or not session.idle
        return in_turn or bool(session.view.background.running)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep the writer lock of the session within the block, once this process has taken
        it.
        """
        self._open_holds += 1
        try:
            yield
        finally:
            self._open_holds -= 1

    @property
    def busy(self) -> bool:
        return super().busy or self.at_work

    def close_to_orders(self) -> None:
        """Refuse orders from now on."""
        self.closing = True
        self._sink.end_reason = CLOSED

    async def lease(self, claim: int) -> None:
        """Take the writer lock of the session under the number `claim`."""
        await self._sink.lease(claim)

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None:
        """Note that a worker runs the session from now on, under the number `claim`.

        `leaves_turn` is called before each step. If it returns True, the turn is left, for
        another process to continue.
        """
        self._sink.begin_work(claim, leaves_turn)
        if not self.was_run:
            self.launch.mark_for_notes(self.session.id)
        self.claimed = True
        self.was_run = True
        self._unsubscribe()  # after a move, events come from another hub
        self._unsubscribe = self.session.on_event(self._signal_lease)

    def end_work(self) -> None:
        """Note that no worker of this process runs the session any more."""
        self.claimed = False
        # While the conversation closes, the claim stays, so that late events are refused
        # once another claim exists.
        if not self.closing:
            self._sink.begin_work(claim=0, leaves_turn=lambda: False)
        self._signal_lease()

    def _signal_lease(self, _: Entry | None = None) -> None:
        """Signal `_accept_clients` if this process has taken or released the writer lock."""
        if self.session.has_lease is not self._is_listening:
            self._lease_moved.set()

    async def _accept_clients(self) -> None:
        """Let clients of other processes join whenever this process has the writer lock."""
        # This task may have been started by the request of a person's page. Clients of the
        # socket act as the owner of this machine instead.
        act_as_owner()
        while True:
            self._lease_moved = anyio.Event()
            self._is_listening = self.session.has_lease
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
        """Carry out an order that the worker has taken, and return its result."""
        return await self._sink.carry_out(order)

    async def write_title(self) -> None:
        """Have a model write the title, if the session needs one.

        The worker calls it between turns.
        """
        await self._sink.write_title()

    async def finish_claim(self) -> None:
        """Store what other workers need, before a claim ends. Here nothing needs to be
        stored.
        """

    async def has_news(self) -> bool:
        """Read the journal. Return whether another process has written to it since the last
        read.
        """
        before = self.session.view.seq
        await self.session.follow()
        return self.session.view.seq > before

    def set_holder(self, holder: str) -> None:
        """Set `holder`, which describes the other process that writes the session; "" if
        none does.

        The clients are informed if it changes.
        """
        if holder == self.holder:
            return
        self.holder = holder
        has_open_turn = not self.session.idle
        self.cut_off = has_open_turn and not holder  # no process runs the turn
        self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def _run_follower_tasks(self) -> None:
        """Let other processes join, and wake the session for its worker when there is work."""
        async with anyio.create_task_group() as group:
            if self._is_joinable:
                group.start_soon(self._accept_clients)
            while True:
                await self._has_work.wait()
                self._has_work = anyio.Event()
                await self._runner.wake(self.session.id)


class JoinedConversation(Conversation):
    """A conversation that another process runs, for the clients of both processes."""

    async def _run_follower_tasks(self) -> None:
        """Follow the session until it is closed where it runs, then close the conversation."""
        with suppress(BadInput):  # raised once the session was closed
            while True:
                await self.session.wait_for_change(after=self.session.view.seq)
        self.close()


class _PlacingSink(Dispatcher):
    """Queues the orders of clients (`send`) for the worker that runs the session.

    The worker carries them out by `carry_out` and `step`.
    """

    def __init__(self, launch: Launch, opened: OpenedSession, ports: Ports) -> None:
        super().__init__(launch, opened)
        self._id = opened.engine.view.session.id
        self._ports = ports

    async def send(self, order: Order) -> OrderResult:
        """Queue the order for the worker, and return its result or raise its error."""
        if self.end_reason:
            raise BadInput(self.end_reason)
        placed = await self._ports.orders.put(self._id, order)
        await self._ports.runner.wake(self._id)
        return await placed.result()

    async def carry_out(self, order: Order) -> OrderResult:
        return await super().send(order)

    async def write_title(self) -> None:
        # Imported late: a start does not need it.
        from refold.app.memory_worker import write_title

        await write_title(self._app, self._engine.record)

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None:
        self._engine.record.claim = claim
        self._engine.leaves_turn = leaves_turn

    async def lease(self, claim: int) -> None:
        """Take the writer lock under the claim with this number."""
        self._engine.record.claim = claim
        self._asked_seq = 0  # a question that the user was asked may be lost
        await self._engine.record.open()


def _allow_any(_directory: str) -> None:
    pass
