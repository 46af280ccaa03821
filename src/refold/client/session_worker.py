"""Runs the sessions that this process has a claim on: carries orders out, and runs turns.

A claim begins when the session is woken, and ends after a minute without work. In between
the worker holds the writer lock, from the first event on, under the number of the claim. It
also ends if another process holds the lock, and the next order gets a new
claim. A session whose lock another process took (`Fenced`) is closed: it must be opened again.

`host` is the other side: it looks at sessions, places orders and follows; the ports between
them are in `host_ports`. If too many files are open, idle sessions are released at once, and
claims wait.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
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
_BEGIN_SECONDS = 1.0  # in which a session that begins opens its files
_POLL_SECONDS = 0.1  # between two checks of the open files
_RETRY_SECONDS = 0.2  # after a lost connection to the journal or the orders
_MAX_WAIT_SECONDS = 20.0  # for room; a session that begins without reports what it lacks
CLOSED = "the conversation was closed here: connect again"


class RunnableSession(Protocol):
    """A session that is open in this process."""

    session: Session
    cut_off: bool  # its turn waits for an order to continue it

    @property
    def at_work(self) -> bool: ...
    async def lease(self, claim: int) -> None:
        """Take the writer lock under this claim. Events that the journal has lost are forgotten."""
        ...

    def begin_work(self, claim: int, leaves_turn: Callable[[], bool]) -> None: ...
    def end_work(self) -> None: ...
    async def carry_out(self, order: Order) -> OrderResult: ...
    async def write_title(self) -> None: ...
    async def finish_claim(self) -> None:
        """Called before a claim ends by itself: what other workers need is stored."""
        ...

    def report(self, error: Exception) -> None: ...
    def close(self) -> None: ...


class SessionWorker:
    """Runs claimed sessions. `find` returns the open session of an id; None if closed.

    `prepare` is awaited before the session of a claim is looked up, and may open it. If it
    `has_others`, another worker continues a turn that was cut off here, or, once the claim is
    cancelled, left open after a step.
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
        self._orders, self._runner, self._find = orders, runner, find
        self._idle_seconds, self._prepare = idle_seconds, prepare
        self._has_others = has_others
        self._runs = set[_Run]()
        self._begun = deque[float]()  # when the last sessions began

    async def run(self) -> None:
        """Run the claimed sessions until this is cancelled."""
        claims = self._runner.claims()
        async with anyio.create_task_group() as group, aclosing(claims):
            async for claim in claims:
                try:
                    if not self._has_files(claim.session):
                        await self.wait_for_free_files()
                except anyio.get_cancelled_exc_class():
                    with anyio.CancelScope(shield=True):
                        await claim.end(unfinished=self._has_others)
                    raise
                group.start_soon(self._run, claim)

    def _has_files(self, id_: str) -> bool:
        session = self._find(id_)
        return session is not None and session.session.has_lease

    async def wait_for_free_files(self) -> None:
        """Wait until another session can open its files. Idle sessions are released for it."""
        with anyio.move_on_after(_MAX_WAIT_SECONDS):
            while not open_files.can_begin_session(self._count_beginning()):
                self.release_idle()
                await anyio.sleep(_POLL_SECONDS)
        self._begun.append(anyio.current_time())

    def release_idle(self) -> None:
        """End the claims on sessions that have nothing to do, before their time."""
        for run in self._runs:
            run.end_if_idle()

    def _count_beginning(self) -> int:
        recent = anyio.current_time() - _BEGIN_SECONDS
        while self._begun and self._begun[0] < recent:
            self._begun.popleft()
        return len(self._begun)

    async def _run(self, claim: SessionClaim) -> None:
        run: _Run | None = None
        problem: RefoldError = ClosedHere(CLOSED)
        try:
            if self._prepare is not None:
                await self._prepare(claim)
            if (session := self._find(claim.session)) is not None:
                run = _Run(claim, session, self._orders, has_others=self._has_others)
                self._runs.add(run)
                await run.run(self._idle_seconds)
        except RefoldError as error:  # it could not be opened
            problem = error
        finally:
            if run is not None:
                self._runs.remove(run)
            with anyio.CancelScope(shield=True):
                try:
                    if run is None or run.ending:
                        await self._settle_rest(claim, problem)
                finally:
                    await claim.end(unfinished=self._is_unfinished(run, problem))

    async def _settle_rest(self, claim: SessionClaim, problem: RefoldError) -> None:
        """Settle the orders that nothing carries out any more."""
        with suppress(JournalError):  # their queue cannot be reached: they stay there
            for placed in await self._orders.take(claim.session, claim.number):
                await placed.settle(problem)

    def _is_unfinished(self, run: "_Run | None", problem: RefoldError) -> bool:
        """Whether another claim must continue what this one leaves."""
        if run is None:  # it was cancelled, or not reached: what it has to do is not known
            return self._has_others and isinstance(problem, ClosedHere | Disconnected)
        if run.woken_late and not run.ending:
            return True
        return self._has_others and run.is_unfinished


class _Run:
    """One claim, from its beginning to its end."""

    def __init__(
        self,
        claim: SessionClaim,
        session: RunnableSession,
        orders: Orders,
        *,
        has_others: bool,
    ) -> None:
        self._claim, self._there, self._orders = claim, session, orders
        self._has_others = has_others
        self._news, self.ending, self._open = anyio.Event(), False, 0
        self._is_over, self.woken_late = False, False  # orders came when it had ended
        self._is_unwanted = False  # another process holds it, or its files are needed
        self.is_unfinished = True  # if it is cancelled, or its turn was left open
        self._forget = session.session.on_event(self._wake)

    async def run(self, idle_seconds: float) -> None:
        self._there.begin_work(self._claim.number, lambda: self._has_others and self.ending)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_orders, group)
                group.start_soon(self._await_end)
                group.start_soon(self._write_title)
                await self._run_turns(idle_seconds)
                self._is_over = True
                group.cancel_scope.cancel()
            await self._there.finish_claim()
            if not self.ending:
                await self._there.session.release()
            self.is_unfinished = self.ending and not self._there.session.idle
        except Exception as error:  # what one session does must not end the others
            self._there.report(error)
            self.is_unfinished = isinstance(error, Disconnected)
        finally:
            self._forget()
        self._there.end_work()

    async def _run_turns(self, idle_seconds: float) -> None:
        runnable, is_sure = self._there, True  # whether the journal has all that it knows
        while True:
            news = self._news
            try:
                if not is_sure:
                    await runnable.lease(self._claim.number)
                    is_sure = True
                if not runnable.cut_off and await runnable.session.step():
                    continue
            except (
                Disconnected,
                Conflict,
            ) as error:  # events that were not kept may be lost
                runnable.report(error)
                is_sure = False
                await anyio.sleep(_RETRY_SECONDS)
                continue
            except (
                RefoldError
            ) as error:  # the disk, or the model: the next order tries again
                runnable.report(error)
                self._handle_lost_lock(error)
            if self.ending or (self._is_unwanted and self._is_idle):
                return
            with anyio.move_on_after(idle_seconds) as patience:
                await news.wait()
            if patience.cancelled_caught and self._is_idle:
                return

    async def _write_title(self) -> None:
        """Have a title written after the first turn. Without one, it is tried again when the
        session is closed.
        """
        while (view := self._there.session.view).turn.seq or not view.account.spent.answers:
            await self._news.wait()
        with suppress(RefoldError):
            await self._there.write_title()

    @property
    def _is_idle(self) -> bool:
        return not (self._open or self._there.at_work)

    def end_if_idle(self) -> None:
        """Release the session now, if nothing runs in it."""
        if self._is_idle:
            self._is_unwanted = True
            self._wake()

    async def _take_orders(self, group: TaskGroup) -> None:
        while True:
            await _until_reached(self._claim.wait_for_wake)
            if self._is_over:
                self.woken_late = True
                return
            take = partial(self._orders.take, self._claim.session, self._claim.number)
            for placed in await _until_reached(take):
                self._open += 1
                group.start_soon(self._carry_out, placed)
            self._wake()

    async def _carry_out(self, placed: PlacedOrder) -> None:
        outcome: OrderResult | RefoldError = ClosedHere(CLOSED)
        try:
            outcome = await self._there.carry_out(placed.order)
            if outcome.opened is not None:  # its events come from another hub now
                self._forget()
                self._forget = outcome.opened.engine.hub.subscribe(self._wake)
        except RefoldError as error:
            outcome = error
        finally:
            self._open -= 1
            await _settle(placed, outcome)
            self._handle_lost_lock(outcome)
            self._wake()

    def _handle_lost_lock(self, outcome: OrderResult | RefoldError) -> None:
        """End the claim on a session that another process has."""
        if isinstance(outcome, Held):
            self._is_unwanted = True
        if isinstance(outcome, Fenced):
            self.ending = True
            self._there.close()

    async def _await_end(self) -> None:
        reason = await self._claim.wait_for_cancel()
        if reason:
            self._there.session.forget_orders()
            with suppress(RefoldError):
                await self._there.carry_out(Interrupt(reason=reason))
        self.ending = True
        self._wake()

    def _wake(self, _: Entry | None = None) -> None:
        self._news.set()
        self._news = anyio.Event()


async def _settle(placed: PlacedOrder, outcome: OrderResult | RefoldError) -> None:
    """Settle an order, tried again after a lost connection unless this is cancelled."""
    with suppress(Disconnected), anyio.CancelScope(shield=True):
        await placed.settle(outcome)
        return
    await _until_reached(partial(placed.settle, outcome))


async def _until_reached(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of `work`. Call it again after each lost connection."""
    while True:
        try:
            return await work()
        except Disconnected:
            await anyio.sleep(_RETRY_SECONDS)
