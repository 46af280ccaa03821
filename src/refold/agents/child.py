"""Runs one subagent: opens its session, gives it its task, runs it to its end and closes it.

If the waiting call is cancelled, the child is stopped and has a few seconds to settle its calls.
`keep` records its end in the journal of the parent; the report for the parent's model is made
here. `children` decides which children there are.

The limit on subagents counts the whole tree in one turn: limits on depth and on concurrency
alone let 500 calls with 50 calls each make 25,500 journals.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.agents.profile import Profile
from refold.agents.worktree import Worktree, Worktrees
from refold.engine.authorize import ParentRights
from refold.engine.world import BudgetGrant, Shared
from refold.errors import JournalError, first
from refold.journal.events.child_events import ChildBorn, ChildEnded, Denial
from refold.journal.events.kinds import AgentChosen, BudgetSet, Event, ModeChanged, Said
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.permissions.rules import Rule
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.tools.task import Report, report_text
from refold.values.modes import AWAITED_SECONDS, Outcome
from refold.values.text import between_tags, clean

if TYPE_CHECKING:
    from refold.agents.team import Team
    from refold.agents.teammate import Teammate
    from refold.tools.todo import Board

GRACE_SECONDS = 2.0  # for a stopped child to settle its calls
_MAX_DENIALS = 100  # repeated in an end; the child's journal has all
_TASK_KEY = "task"  # the client key of its first message
_DONE_OUTCOMES: frozenset[str] = frozenset(("answered", "final", "plan_ready"))
_PAUSED_OUTCOMES: frozenset[str] = frozenset(("step_limit", "budget", "stuck"))
NOT_IN_WORKTREE = (
    "(Its working tree began at commit {base}. What is not committed here was not in it.)"
)


class TreePosition(Struct, frozen=True):
    """The place of a session in its tree. At depth `deepest`, no child is started."""

    depth: int = 0  # 0: the session of the user
    coded: int = 0  # sessions above it whose code started the next one
    deepest: int = 2
    at_once: int = 8
    total: int = 200  # children of the whole tree, in one turn of its root


class ChildSpec(Struct, frozen=True, kw_only=True):
    """All that is needed to open the session of a child.

    It has at most the rights of `parent`, and only tools that are in `tools`. `reading` are the
    read rules of all agents above it. `directory` is its own workspace, with `roots` around it; "":
    that of its parent. `attached` is the session whose variables it begins with, `context` are the
    values that code passed, and its answer must match `schema`. `claim` is the number under which
    this process was given the session.
    """

    id: str
    agent: Profile
    parent: ParentRights
    grant: BudgetGrant
    shared: Shared
    tools: frozenset[str]
    address: str
    position: TreePosition
    reading: tuple[Rule, ...] = ()
    directory: str = ""
    roots: tuple[str, ...] = ()
    attached: str = ""
    context: Mapping[str, object] = {}
    schema: Raw | None = None
    team: "Team | None" = None  # as a teammate sees it
    claim: int = 0


Open = Callable[[ChildSpec], AbstractAsyncContextManager[Session]]
Keep = Callable[[ChildEnded], Awaitable[None]]


class ChildServices(Struct, frozen=True):
    """What the children of one session share. `grace`: seconds to settle stopped calls."""

    open: Open
    trees: Worktrees
    grace: float = GRACE_SECONDS
    board: "Board | None" = None  # None if there are no teams
    # Seconds that a teammate without work stays, and between its checks of the board.
    patience: tuple[float, float] = (60.0, 5.0)


class ChildRun:
    """The run of one `child` of `parent`. If `spec` raises, the child has failed."""

    def __init__(
        self,
        child: Child,
        spec: Callable[[], ChildSpec],
        services: "ChildServices",
        parent: Recorder,
        keep: Keep,
    ) -> None:
        self.child, self._spec, self._parent = child, spec, parent
        self._open, self._trees, self._grace = services.open, services.trees, services.grace
        self._services = services
        self._record_end = keep
        self._reason = ""
        self._stop, self._done = anyio.Event(), anyio.Event()
        self._queue, self._abort = anyio.CancelScope(), anyio.CancelScope()
        self._patience = anyio.CancelScope()  # of the wait for a background command

    @property
    def background(self) -> bool:
        return self.child.born.background

    def stop(self, reason: str) -> None:
        """Cancel its turn and settle its calls. The first reason is kept."""
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()
            self._queue.cancel()
            self._patience.cancel()

    async def run(self, places: anyio.Semaphore | None = None) -> None:
        """Run the child to its end, once one of the `places` is free. If cancelled, stop
        the child first.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._run_whole, places)
            try:
                await self._done.wait()
            except anyio.get_cancelled_exc_class():
                await self._stop_and_wait()
                raise

    async def _run_whole(self, places: anyio.Semaphore | None) -> None:
        with anyio.CancelScope(shield=True):
            placed = False
            try:
                with self._queue:  # a stop ends the wait
                    if places is not None:
                        await places.acquire()
                        placed = True
                await self._record_end(await self._run_to_end())
            finally:
                if placed and places is not None:
                    places.release()
                self._done.set()

    async def _stop_and_wait(self) -> None:
        view = self._parent.view
        stopped = view.turn.stopped
        with anyio.CancelScope(shield=True):
            self.stop(
                stopped.reason if stopped else "the call that waited for it was stopped"
            )
            with anyio.move_on_after(self._grace):
                await self._done.wait()
            self._abort.cancel()
            await self._done.wait()

    async def _run_to_end(self) -> ChildEnded:
        try:
            return await self._remove_tree(await self._open_and_run())
        except Exception as error:  # a child's failure must not end its parent
            return _to_failure(ChildEnded(self.child.name, "failed", "failed"), error)

    async def _open_and_run(self) -> ChildEnded:
        spec, born = self._spec(), self.child.born
        if born.branch:
            tree = Worktree(born.directory, born.branch, born.base)
            await self._trees.make(tree, spec.directory)
        async with self._open(spec) as session:
            try:
                await self._run_session(session, spec.agent)
            except Exception as error:  # its usage must be recorded all the same
                end = _to_failure(end_of(self.child.name, session), error)
                return self._with_unread_mail(end, session.view)
            end = self._with_unread_mail(end_of(self.child.name, session), session.view)
        # A child that is stopped before its turn has no turn with a reason.
        has_reason = end.outcome != "cancelled" or end.reason not in ("", "cancelled")
        return end if has_reason or not self._reason else replace(end, reason=self._reason)

    def _with_unread_mail(self, end: ChildEnded, member: View) -> ChildEnded:
        if not self.child.born.teammate:
            return end
        from refold.agents.team import unread_mail

        unread = unread_mail(self.child, self._parent.view, member)
        reason = end.reason if end.reason not in ("", "cancelled") else self._reason
        reasons = "; ".join(filter(None, (reason, unread)))
        return replace(end, reason=reasons) if unread else end

    async def _run_session(self, session: Session, agent: Profile) -> None:
        words = partial(self._first_events, agent)
        await session.record.append_if(words, kept=True, author="parent")
        with self._abort:
            await self._wait_until_done(session)
        if self._abort.cancelled_caught:
            with anyio.move_on_after(self._grace / 2):
                await session.run_turns()  # settles the interrupted calls

    async def _wait_until_done(self, session: Session) -> None:
        from refold.agents.relay import Relay

        relay = Relay(self.child.born, session, self._parent)
        async with anyio.create_task_group() as group:
            group.start_soon(relay.relay_questions)
            group.start_soon(relay.relay_news)
            group.start_soon(self._pass_stop_on, session)
            if self._stop.is_set():
                await session.inbox.cancel(self._reason)
            teammate = self._teammate(session)
            if teammate is not None:
                group.start_soon(teammate.mail)
            await self._run_turns(session)
            while teammate and session.view.turn.outcome in _DONE_OUTCOMES:
                if not await teammate.next_turn():
                    break
                await self._run_turns(session)
            group.cancel_scope.cancel()

    def _teammate(self, session: Session) -> "Teammate | None":
        board, patience = self._services.board, self._services.patience
        if not self.child.born.teammate or board is None:
            return None
        from refold.agents.teammate import Teammate

        return Teammate(self.child, session, self._parent, board, self._stop, patience)

    async def _run_turns(self, session: Session) -> None:
        view = await self._run_until_settled(session)
        while self._awaits(view):
            with anyio.move_on_after(AWAITED_SECONDS) as self._patience:
                await session.record.wait_for_event(after=view.seq)
            if self._patience.cancelled_caught:
                return
            view = await self._run_until_settled(session)

    async def _run_until_settled(self, session: Session) -> View:
        view = await session.run_turns()
        while view.turn.seq:  # it waits for the user
            await session.record.wait_for_event(after=view.seq)
            view = await session.run_turns()
        return view

    def _awaits(self, view: View) -> bool:
        """Whether the child must wait for a background command to wake it.

        A teammate does not: it waits for mail as well.
        """
        stays = not self._stop.is_set() and not self.child.born.teammate
        return stays and bool(view.commands_to_await)

    async def _pass_stop_on(self, session: Session) -> None:
        await self._stop.wait()
        await session.inbox.cancel(self._reason)

    def _first_events(self, agent: Profile, view: View) -> tuple[Event, ...]:
        """The agent, the mode, the budget and the task of the child, as events that are
        recorded once.
        """
        if _TASK_KEY in view.account.client_keys:
            return ()
        return (
            AgentChosen(agent.name),
            *((ModeChanged(agent.mode),) if agent.mode else ()),
            BudgetSet(self.child.granted),
            Said(self.child.born.task, "parent", client_key=_TASK_KEY),
        )

    async def _remove_tree(self, end: ChildEnded) -> ChildEnded:
        """Remove the working tree of the child, unless something was changed in it."""
        born = self.child.born
        if not born.branch:
            return end
        tree = Worktree(born.directory, born.branch, born.base)
        if await self._trees.remove_if_unchanged(tree):
            return end
        return replace(end, branch=born.branch, directory=born.directory)


def end_of(child: str, session: Session) -> ChildEnded:
    """The end of a child, from its journal."""
    view, turn = session.view, session.view.turn
    outcome: Outcome = "cancelled" if turn.seq or not turn.outcome else turn.outcome
    return ChildEnded(
        child,
        outcome,
        _status(outcome, turn.answer),
        turn.answer,
        turn.reason or ("" if outcome in _DONE_OUTCOMES else outcome),
        view.account.spent + view.account.children_spent,
        session.record.head,
        as_json=turn.as_json,
        denials=tuple(
            Denial(replace(d.call, id=f"{child}/{d.call.id}"), d.reason)
            for d in turn.denials[:_MAX_DENIALS]
        ),
        outside=view.outside_text.ever,
    )


def _to_failure(end: ChildEnded, error: Exception) -> ChildEnded:
    cause = first(error)
    reason = str(cause) or type(cause).__name__
    return replace(end, outcome="failed", status="failed", reason=reason)


def _status(outcome: Outcome, text: str) -> Literal["done", "partial", "failed"]:
    if outcome in _DONE_OUTCOMES:
        return "done"
    worked = text.strip() and outcome != "failed"
    return "partial" if outcome in _PAUSED_OUTCOMES or worked else "failed"


def report_of(end: ChildEnded, view: View) -> Report:
    """The report for the call that started it."""
    child = view.children.child(end.child)
    tree = worktree_of(child.born) if child else None
    note = f"\n\n{NOT_IN_WORKTREE.format(base=tree.base[:12])}" if tree else ""
    return Report(
        end.child, end.status, end.text + note, end.reason, end.branch, end.directory
    )


async def background_report(end: ChildEnded, record: Recorder, longest: int) -> str:
    """The report as a message in the conversation, in tags that its text cannot close."""
    child = record.view.children.child(end.child)
    agent = child.born.agent if child else ""
    known = f' teammate="{child.born.teammate}"' if child and child.born.teammate else ""
    words = await _cut_and_store(report_text(report_of(end, record.view)), record, longest)
    tamed = between_tags(words, "child", "mail")
    about = f'name="{end.child}"{known} agent="{agent}" status="{end.status}"'
    return f"<child {about}>\n{tamed}\n</child>"


def worktree_of(born: ChildBorn) -> Worktree | None:
    """The working tree of a child, if it has one of its own."""
    return Worktree(born.directory, born.branch, born.base) if born.branch else None


async def _cut_and_store(text: str, record: Recorder, longest: int) -> str:
    if len(text) <= longest:
        return text
    try:
        name = await record.put(clean(text).encode())
        hint = f'read_file with path "blob:{name}" reads the whole'
    except JournalError as error:
        hint = f"the full text could not be stored: {error}"
    half = longest // 2
    left = len(text) - 2 * half
    return f"{text[:half]}\n[… {left} characters are left out; {hint} …]\n{text[-half:]}"
