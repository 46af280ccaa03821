"""The life of one child: its session is opened, fed, carried on to its end, and closed.

Whoever waits for it may be stopped; the child is then stopped too, and given a moment to
settle its calls, before anything else goes on. What it came to is recorded by `keep`,
which is given to it; which child there is to be is decided in `children`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Literal

import anyio
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.agents.profile import Profile
from refold.agents.relay import Relay
from refold.agents.worktree import Tree, Worktrees
from refold.engine.authorize import ParentRights
from refold.engine.world import BudgetGrant, Shared
from refold.errors import first
from refold.journal.events.child_events import ChildEnded
from refold.journal.events.kinds import AgentChosen, BudgetSet, Event, ModeChanged, Said
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.permissions.rules import Rule
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.values.modes import Outcome

GRACE = 2.0  # seconds in which a child that is stopped may settle its calls
_TASK = "task"  # the client key of its first words
_DONE: frozenset[str] = frozenset(("answered", "final", "plan_ready"))
_PAUSED: frozenset[str] = frozenset(("step_limit", "budget", "stuck"))


class Position(Struct, frozen=True):
    """Where a session is in its tree. `deepest` is where there are no more children."""

    depth: int = 0  # 0: a person's
    coded: int = 0  # sessions above it whose code began the next one
    deepest: int = 2
    at_once: int = 8
    total: int = 200  # children of the whole tree, in one turn of its root


class Opening(Struct, frozen=True, kw_only=True):
    """A child's session, as whoever opens it has to know it.

    It may do no more than `above`, and is given no tool that is not in `tools`.
    `reading` are the rules of all agents above that keep them from reading.
    `directory` is its own place to work, with `roots` around it; "": where its parent does.
    `attached` is the session whose variables it begins with, `context` what code gave it
    besides, `schema` what its answer has to match.
    """

    id: str
    agent: Profile
    above: ParentRights
    purse: BudgetGrant
    shared: Shared
    tools: frozenset[str]
    address: str
    position: Position
    reading: tuple[Rule, ...] = ()
    directory: str = ""
    roots: tuple[str, ...] = ()
    attached: str = ""
    context: Mapping[str, object] = {}
    schema: Raw | None = None


Open = Callable[[Opening], AbstractAsyncContextManager[Session]]
Keep = Callable[[ChildEnded], Awaitable[None]]


class Ways(Struct, frozen=True):
    """What every child of one session needs. `grace` is in seconds."""

    open: Open
    trees: Worktrees
    grace: float = GRACE


class Life:
    """Of one `child` of `parent`. `opening` may raise: then its end is that it failed."""

    def __init__(
        self,
        child: Child,
        opening: Callable[[], Opening],
        ways: "Ways",
        parent: Recorder,
        keep: Keep,
    ) -> None:
        self.child, self._opening, self._parent = child, opening, parent
        self._open, self._trees, self._grace = ways.open, ways.trees, ways.grace
        self._keep = keep
        self._why = ""
        self._stop, self._over = anyio.Event(), anyio.Event()
        self._queue, self._hard = anyio.CancelScope(), anyio.CancelScope()

    @property
    def beside(self) -> bool:
        return self.child.born.background

    def stop(self, reason: str) -> None:
        """Let it end soon: its turn is cancelled, and its calls are settled."""
        if not self._stop.is_set():
            self._why = reason
            self._stop.set()
            self._queue.cancel()

    async def lived(self, places: anyio.Semaphore | None = None) -> None:
        """Live it to its end, on one of the `places`. Cancelled, it ends the child first."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._whole, places)
            try:
                await self._over.wait()
            except anyio.get_cancelled_exc_class():
                await self._wind_up()
                raise

    async def _whole(self, places: anyio.Semaphore | None) -> None:
        with anyio.CancelScope(shield=True):
            placed = False
            try:
                with self._queue:  # one that is stopped waits no longer, and ends at once
                    if places is not None:
                        await places.acquire()
                        placed = True
                await self._keep(await self._work())
            finally:
                if placed and places is not None:
                    places.release()
                self._over.set()

    async def _wind_up(self) -> None:
        view = self._parent.view
        stopped = view.turn.stopped
        with anyio.CancelScope(shield=True):
            self.stop(stopped.reason if stopped else "whoever waited for it was stopped")
            with anyio.move_on_after(self._grace):
                await self._over.wait()
            self._hard.cancel()
            await self._over.wait()

    async def _work(self) -> ChildEnded:
        try:
            return await self._settled(await self._opened())
        except Exception as error:  # its failure must not take its parent with it
            return _failed(ChildEnded(self.child.name, "failed", "failed"), error)

    async def _opened(self) -> ChildEnded:
        opening, born = self._opening(), self.child.born
        if born.branch:
            tree = Tree(born.directory, born.branch, born.base)
            await self._trees.make(tree, opening.directory)
        async with self._open(opening) as session:
            try:
                await self._through(session, opening.agent)
            except Exception as error:  # what it has used up has to be told all the same
                return _failed(ended(self.child.name, session), error)
            return ended(self.child.name, session)

    async def _through(self, session: Session, agent: Profile) -> None:
        words = partial(self._first_words, agent)
        await session.record.append_if(words, kept=True, by="parent")
        with self._hard:
            await self._carried_on(session)
        if self._hard.cancelled_caught:
            with anyio.move_on_after(self._grace / 2):
                await session.go()  # settles what was broken off

    async def _carried_on(self, session: Session) -> None:
        relay = Relay(self.child.born, session, self._parent)
        async with anyio.create_task_group() as group:
            group.start_soon(relay.questions)
            group.start_soon(relay.news)
            group.start_soon(self._heed_stop, session)
            if self._stop.is_set():
                await session.inbox.cancel(self._why)
            view = await session.go()
            while view.turn.seq:  # it waits for the person
                await session.record.news(after=view.seq)
                view = await session.go()
            group.cancel_scope.cancel()

    async def _heed_stop(self, session: Session) -> None:
        await self._stop.wait()
        await session.inbox.cancel(self._why)

    def _first_words(self, agent: Profile, view: View) -> tuple[Event, ...]:
        """Once in its life: who it is, what it may use up, and what it is to do."""
        if _TASK in view.account.client_keys:
            return ()
        return (
            AgentChosen(agent.name),
            *((ModeChanged(agent.mode),) if agent.mode else ()),
            BudgetSet(self.child.granted),
            Said(self.child.born.task, "parent", client_key=_TASK),
        )

    async def _settled(self, end: ChildEnded) -> ChildEnded:
        """Its working tree goes, if nothing was changed in it."""
        born = self.child.born
        if not born.branch:
            return end
        tree = Tree(born.directory, born.branch, born.base)
        if await self._trees.removed(tree):
            return end
        return replace(end, branch=born.branch, directory=born.directory)


def ended(child: str, session: Session) -> ChildEnded:
    """What a child's journal says that it came to."""
    view, turn = session.view, session.view.turn
    outcome: Outcome = "cancelled" if turn.seq or not turn.outcome else turn.outcome
    return ChildEnded(
        child,
        outcome,
        _status(outcome, turn.answer),
        turn.answer,
        turn.reason or ("" if outcome in _DONE else outcome),
        view.account.spent + view.account.children_spent,
        session.record.head,
        as_json=turn.as_json,
    )


def _failed(end: ChildEnded, error: Exception) -> ChildEnded:
    found = first(error)
    reason = str(found) or type(found).__name__
    return replace(end, outcome="failed", status="failed", reason=reason)


def _status(outcome: Outcome, text: str) -> Literal["done", "partial", "failed"]:
    if outcome in _DONE:
        return "done"
    worked = text.strip() and outcome != "failed"
    return "partial" if outcome in _PAUSED or worked else "failed"
