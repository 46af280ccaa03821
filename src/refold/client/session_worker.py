"""Runs the sessions on which this process has a claim: carries orders out, and runs turns.

A claim begins when the session is woken, and ends after a minute without work. From its
first event to its end, the worker holds the writer lock under the number of the claim. If
another process holds the lock, the claim ends at once, and the next order leads to a new
claim. If another process took the lock away (`Fenced`), the session is closed and must be
opened again.

`host` is the other side: it shows sessions and places orders. `host_ports` has the
interfaces between the two. While too many files are open, new claims wait, and idle
sessions are released.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from refold.client import open_files
from refold.client.host_ports import (
    ClosedHere,
    Orders,
    PlacedOrder,
    Runner,
    SessionClaim,
)
from refold.client.order_sink import OrderResult
from refold.client.protocol import Interrupt, Order
from refold.client.session import Session
from refold.errors import Conflict, Disconnected, Fenced, Held, JournalError, RefoldError
from refold.journal.events.kinds import Entry

ResultT = TypeVar("ResultT")
IDLE_SECONDS = 60.0  # without work, after which a session is released
_POLL_SECONDS = 0.1  # between two checks of the open files
_RETRY_SECONDS = 0.2  # after a lost connection to the journal or the orders
# The longest wait for free files. After it a session begins anyway, and reports an error.
_MAX_WAIT_SECONDS = 20.0
CLOSED = "the conversation was closed here: connect again"


class RunnableSession(Protocol):
    """What the worker needs of a session that is open in this process."""

    session: Session
    cut_off: bool  # an order must continue its interrupted turn

    @property
    def at_work(self) -> bool:
        """Whether this process runs a turn or a background command of the session."""
        ...

    async def lease(self, claim: int) -> None:
        """Take the writer lock under the number `claim`.

        Events that the journal has lost are removed from the session's state.
        """
        ...

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None:
        """Note that a worker runs the session under the number `claim`.

        `leaves_turn` is called before each step: True leaves the turn to another process.
        """
        ...

    def end_work(self) -> None:
        """Note that no worker of this process runs the session any more."""
        ...

    async def carry_out(self, order: Order) -> OrderResult:
        """Carry out an order, and return its result. Raises the error of the order."""
        ...

    async def write_title(self) -> None:
        """Have a model write a title for the session, if it needs one."""
        ...

    async def finish_claim(self) -> None:
        """Store what other workers need. This is called before a claim ends without
        cancellation.
        """
        ...

    def report(self, error: Exception) -> None:
        """Report an error of a run to every client."""
        ...

    def close(self) -> None:
        """Close the session in this process."""
        ...


class SessionWorker:
    """Runs claimed sessions. `find` returns the open session with an id, or None.

    `prepare` is awaited first for each claim, and may open the session. `has_others` says
    that there are other workers. If so, another worker continues a turn that was interrupted,
    or that was left after a step because its claim was cancelled.
    """

    def __init__(
        self,
        orders: Orders,
        runner: Runner,
        find: Callable[[str], RunnableSession | None],
        idle_seconds: float = IDLE_SECONDS,
        *,
        prepare: Callable[[SessionClaim], Awaitable[None]] | None = None,
        has_others: bool = False,
    ) -> None:
        self._orders = orders
        self._runner = runner
        self._find = find
        self._idle_seconds = idle_seconds
        self._prepare = prepare
        self._has_others = has_others
        self._runs = set[_Run]()
        self._claims = set[SessionClaim]()  # without those that wait for free files
        self._creating = 0  # sessions that are being created in this process

    async def run(self) -> None:
        """Run the claimed sessions until this task is cancelled."""
        claims = self._runner.claims()
        async with anyio.create_task_group() as group, aclosing(claims):
            async for claim in claims:
                group.start_soon(self._run, claim)

    def _has_files(self, id_: str) -> bool:
        """Whether the session has its files open, because this process holds its writer
        lock.
        """
        session = self._find(id_)
        return session is not None and session.session.has_lease

    @asynccontextmanager
    async def creating(self) -> AsyncGenerator[None]:
        """Wait until enough files are free for a new session, which is created within the
        block.
        """
        await self._wait_for_free_files()
        self._creating += 1
        try:
            yield
        finally:
            self._creating -= 1

    async def _wait_for_free_files(self) -> None:
        """Wait until another session can open its files, but not longer than
        `_MAX_WAIT_SECONDS`.

        Idle sessions are released meanwhile.
        """
        with anyio.move_on_after(_MAX_WAIT_SECONDS):
            while not open_files.can_begin_session(self._count_beginning()):
                self.release_idle()
                await anyio.sleep(_POLL_SECONDS)

    def release_idle(self) -> None:
        """End the claims on sessions without work, without waiting for the idle time."""
        for run in self._runs:
            run.end_if_idle()

    def _count_beginning(self) -> int:
        """Return how many sessions are about to open their files."""
        claimed = sum(not self._has_files(claim.session) for claim in self._claims)
        return self._creating + claimed

    async def _run(self, claim: SessionClaim) -> None:
        """Run the session of a claim until no work is left, then end the claim.

        If the session cannot be opened, its waiting orders get the error as their result.
        """
        run: _Run | None = None
        problem: RefoldError = ClosedHere(CLOSED)  # the result of orders left at the end
        try:
            if not self._has_files(claim.session):
                await self._wait_for_free_files()
            self._claims.add(claim)
            if self._prepare is not None:
                await self._prepare(claim)
            session = self._find(claim.session)
            if session is not None:
                run = _Run(claim, session, self._orders, has_others=self._has_others)
                self._runs.add(run)
                await run.run(self._idle_seconds)
        except RefoldError as error:  # the session could not be opened
            problem = error
        finally:
            self._claims.discard(claim)
            if run is not None:
                self._runs.remove(run)
            # Also if this is cancelled: no other task would settle the orders, or end the
            # claim.
            with anyio.CancelScope(shield=True):
                try:
                    if run is None or run.must_end:
                        await self._settle_waiting(claim, problem)
                finally:
                    await claim.end(unfinished=self._is_unfinished(run, problem))

    async def _settle_waiting(self, claim: SessionClaim, problem: RefoldError) -> None:
        """Settle the waiting orders of the session with the error `problem`."""
        with suppress(JournalError):  # the queue is unavailable: the orders stay in it
            for placed in await self._orders.take(claim.session, claim.number):
                await placed.settle(problem)

    def _is_unfinished(self, run: "_Run | None", problem: RefoldError) -> bool:
        """Whether another claim must continue the work of this claim.

        `run` is the run of this claim. If `run` is None, the session could not be opened
        because of `problem`.
        """
        if run is None:  # it was never opened, so it is unknown whether work is left
            return self._has_others and isinstance(problem, ClosedHere | Disconnected)
        if run.woken_late and not run.must_end:
            return True
        return self._has_others and run.is_unfinished


class _Run:
    """The run of one claim, from its beginning to its end."""

    def __init__(
        self,
        claim: SessionClaim,
        session: RunnableSession,
        orders: Orders,
        *,
        has_others: bool,
    ) -> None:
        self._claim = claim
        self._runnable = session
        self._orders = orders
        self._has_others = has_others  # whether other workers can continue the turn
        self._news = anyio.Event()  # replaced by `_wake` each time it is set
        self._open_orders = 0  # orders that are being carried out
        self.must_end = False  # whether the claim was cancelled, or lost its lock
        self._takes_orders = True  # until the last turn under the claim has been run
        self.woken_late = False  # whether orders arrived after that
        # Whether the claim ends as soon as nothing runs, because another process holds the
        # lock, or another session needs the files.
        self._ends_when_idle = False
        # Stays true if the run is cancelled, or leaves its turn open.
        self.is_unfinished = True
        self._unsubscribe = session.session.on_event(self._wake)

    async def run(self, idle_seconds: float) -> None:
        """Carry out orders and run turns until the claim is cancelled, or the session is
        idle.
        """

        def leaves_turn() -> bool:
            return self._has_others and self.must_end

        self._runnable.begin_work(self._claim.number, leaves_turn)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_orders, group)
                group.start_soon(self._await_end)
                group.start_soon(self._write_title)
                await self._run_turns(idle_seconds)
                self._takes_orders = False
                group.cancel_scope.cancel()
            await self._runnable.finish_claim()
            if not self.must_end:
                await self._runnable.session.release()
            self.is_unfinished = self.must_end and not self._runnable.session.idle
        except Exception as error:  # an error of one session must not end the others
            self._runnable.report(error)
            self.is_unfinished = isinstance(error, Disconnected)
        finally:
            self._unsubscribe()
        self._runnable.end_work()

    async def _run_turns(self, idle_seconds: float) -> None:
        """Run turns until the session has been idle for `idle_seconds`, or the claim must end.

        If the connection to the journal was lost, the session is leased again.
        """
        runnable = self._runnable
        # Whether all events are stored. After a lost connection, some may not be.
        journal_is_complete = True
        while True:
            news = self._news  # taken first, so that no news during a step are missed
            try:
                if not journal_is_complete:
                    await runnable.lease(self._claim.number)
                    journal_is_complete = True
                if not runnable.cut_off:
                    has_worked = await runnable.session.step()
                    if has_worked:
                        continue
            except (Disconnected, Conflict) as error:
                runnable.report(error)
                journal_is_complete = False
                await anyio.sleep(_RETRY_SECONDS)
                continue
            except RefoldError as error:
                # An error of the disk or of the model: the next order tries again.
                runnable.report(error)
                self._handle_lost_lock(error)
            if self.must_end or (self._ends_when_idle and self._is_idle):
                return
            with anyio.move_on_after(idle_seconds) as waiting:
                await news.wait()
            timed_out = waiting.cancelled_caught
            if timed_out and self._is_idle:
                return

    async def _write_title(self) -> None:
        """Have a title written after the first turn.

        If this fails, closing the session tries again.
        """
        while not self._has_ended_turn:
            await self._news.wait()
        with suppress(RefoldError):
            await self._runnable.write_title()

    @property
    def _has_ended_turn(self) -> bool:
        view = self._runnable.session.view
        return not view.turn.seq and view.account.spent.answers > 0

    @property
    def _is_idle(self) -> bool:
        return not (self._open_orders or self._runnable.at_work)

    def end_if_idle(self) -> None:
        """End the claim now if nothing runs in the session."""
        if self._is_idle:
            self._ends_when_idle = True
            self._wake()

    async def _take_orders(self, group: TaskGroup) -> None:
        """Carry out the orders of the session, each in a task of the group."""
        while True:
            await _until_reached(self._claim.wait_for_wake)
            if not self._takes_orders:
                self.woken_late = True
                return
            take = partial(self._orders.take, self._claim.session, self._claim.number)
            for placed in await _until_reached(take):
                self._open_orders += 1
                group.start_soon(self._carry_out, placed)
            self._wake()

    async def _carry_out(self, placed: PlacedOrder) -> None:
        outcome: OrderResult | RefoldError = ClosedHere(CLOSED)  # if this is cancelled
        try:
            outcome = await self._runnable.carry_out(placed.order)
            if outcome.opened is not None:  # the events now come from another hub
                self._unsubscribe()
                self._unsubscribe = outcome.opened.engine.hub.subscribe(self._wake)
        except RefoldError as error:
            outcome = error
        finally:
            self._open_orders -= 1
            await _settle(placed, outcome)
            self._handle_lost_lock(outcome)
            self._wake()

    def _handle_lost_lock(self, outcome: OrderResult | RefoldError) -> None:
        """End the claim if the outcome of an order shows that another process has the lock.

        `Held`: this run could not get the lock. `Fenced`: it had the lock, and has lost it.
        """
        if isinstance(outcome, Held):
            self._ends_when_idle = True
        elif isinstance(outcome, Fenced):
            self.must_end = True
            self._runnable.close()

    async def _await_end(self) -> None:
        """Wait until the claim is cancelled, then end the run.

        If the claim was cancelled for a reason, the turn is interrupted with that reason first.
        """
        reason = await self._claim.wait_for_cancel()
        if reason:
            # Otherwise a message that waits would begin another turn.
            self._runnable.session.forget_orders()
            with suppress(RefoldError):  # the run ends anyway
                await self._runnable.carry_out(Interrupt(reason=reason))
        self.must_end = True
        self._wake()

    def _wake(self, _: Entry | None = None) -> None:
        self._news.set()
        self._news = anyio.Event()


async def _settle(placed: PlacedOrder, outcome: OrderResult | RefoldError) -> None:
    """Settle an order; try again after each lost connection.

    If this task is cancelled, only the first attempt is completed.
    """
    try:
        with anyio.CancelScope(shield=True):
            await placed.settle(outcome)
    except Disconnected:
        await _until_reached(partial(placed.settle, outcome))


async def _until_reached(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of `work`. Call it again after each lost connection."""
    while True:
        try:
            return await work()
        except Disconnected:
            await anyio.sleep(_RETRY_SECONDS)
