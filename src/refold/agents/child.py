"""Runs one subagent: opens its session, sends the task, runs turns until the task is done, and
closes the session.

If the waiting call is cancelled, the child is stopped and has a few seconds to settle its
calls. `ChildRun` records the child's end in the journal of the parent, and makes the report for
the parent's model. `children` decides which children exist.

The limit on subagents counts the whole tree in one turn. Limits on depth and on concurrency
alone would let 500 calls with 50 calls each make 25,500 journals.
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
from refold.journal.events.kinds import Event, Said
from refold.journal.events.setting_events import AgentChosen, BudgetSet, ModeChanged
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.permissions.rules import Rule
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.tools.task import Report, TaskRequest, report_text
from refold.values.modes import AWAITED_SECONDS, Outcome
from refold.values.text import between_tags, clean

if TYPE_CHECKING:
    from refold.agents.team import Team
    from refold.agents.teammate import Teammate
    from refold.tools.todo import Board

GRACE_SECONDS = 2.0  # in which a stopped child can settle its calls
_MAX_DENIALS = 100  # in the event of the end; the child's journal has all denials
_TASK_KEY = "task"  # the client key of a child's first message
_SHORT_COMMIT_CHARS = 12  # of a commit's hash in a report
_DONE_OUTCOMES: frozenset[str] = frozenset(("answered", "final", "plan_ready"))
_PAUSED_OUTCOMES: frozenset[str] = frozenset(("step_limit", "budget", "stuck"))
NOT_IN_WORKTREE = (
    "(Its working tree began at commit {base}. What is not committed here was not in it.)"
)


class ChildRequest(Struct, frozen=True):
    """A call's request for a child. `key` and `n` distinguish the children of one call.

    `attached` is the session whose variables the child gets, and `teammate` is the child's name
    in a team. Each of the two may be "".
    """

    call_id: str
    task: TaskRequest
    key: str = ""
    n: int = 0
    attached: str = ""
    teammate: str = ""


class TreePosition(Struct, frozen=True):
    """The position of a session in the tree of subagents, and the limits of the tree."""

    depth: int = 0  # 0: the session of the user
    coded: int = 0  # number of sessions above it that were started by code of their parent
    deepest: int = 2  # the depth at which no child can be started
    at_once: int = 8  # children of one session that run at the same time
    total: int = 200  # children of the whole tree, in one turn of its root


class ChildSpec(Struct, frozen=True, kw_only=True):
    """Everything that is needed to open the session of a child.

    The child has at most the rights of `parent`, and only tools that are in `tools`. `reading`
    has the read rules of all agents above the child. `directory` is the child's own workspace,
    with the further `roots`; "" means the workspace of its parent. The child begins with the
    variables of the session `attached`. `context` are values that code passed, and the child's
    answer must match `schema`. `claim` is the number under which this process was given the
    session.
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
    """The services that the children of one session share.

    `grace` is the number of seconds that a stopped child has to settle its calls.
    """

    open: Open
    trees: Worktrees
    grace: float = GRACE_SECONDS
    board: "Board | None" = None  # None if there are no teams
    # How long a teammate without work stays, and the time between its checks of the board.
    patience: tuple[float, float] = (60.0, 5.0)


class ChildRun:
    """The run of one `child` of `parent`.

    `spec` returns how to open the child's session. If `spec` raises an error, the child has
    failed. `keep` records the end in the parent's journal.
    """

    def __init__(
        self,
        child: Child,
        spec: Callable[[], ChildSpec],
        services: "ChildServices",
        parent: Recorder,
        keep: Keep,
    ) -> None:
        self.child = child
        self._spec = spec
        self._parent = parent
        self._services = services
        self._open = services.open
        self._trees = services.trees
        self._grace = services.grace  # seconds
        self._record_end = keep
        self._reason = ""  # why it was stopped
        self._stop = anyio.Event()
        self._done = anyio.Event()  # set when the end is recorded
        self._place_wait = anyio.CancelScope()  # of the wait for one of the `places`
        self._abort = anyio.CancelScope()  # of the child's turns
        self._command_wait = anyio.CancelScope()  # of the wait for a background command

    @property
    def background(self) -> bool:
        return self.child.born.background

    def stop(self, reason: str) -> None:
        """Cancel the child's turn and settle its calls.

        If the child was stopped before, the first reason stays.
        """
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()
            self._place_wait.cancel()
            self._command_wait.cancel()

    async def run(self, places: anyio.Semaphore | None = None) -> None:
        """Run the child to its end, once one of the `places` is free.

        If this method is cancelled, it stops the child and waits until the end is recorded.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._run_and_record, places)
            try:
                await self._done.wait()
            except anyio.get_cancelled_exc_class():
                await self._stop_and_wait()
                raise

    async def _run_and_record(self, places: anyio.Semaphore | None) -> None:
        """Wait for one of the `places`, run the child, and record its end, shielded from
        cancellation.
        """
        with anyio.CancelScope(shield=True):
            acquired: anyio.Semaphore | None = None
            try:
                with self._place_wait:  # a stop ends the wait
                    if places is not None:
                        await places.acquire()
                        acquired = places
                end = await self._run_to_end()
                await self._record_end(end)
            finally:
                if acquired is not None:
                    acquired.release()
                self._done.set()

    async def _stop_and_wait(self) -> None:
        """Stop the child, and wait for its end. After the grace period, the child is
        cancelled.
        """
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
        """Run the child, and return its end. A failure becomes an end with the outcome
        "failed".
        """
        try:
            return await self._remove_tree(await self._open_and_run())
        except Exception as error:  # a failure of a child must not end its parent
            end = ChildEnded(self.child.name, outcome="failed", status="failed")
            return _to_failure(end, error)

    async def _open_and_run(self) -> ChildEnded:
        """Open the session of the child, run the child, and return its end.

        An error while it runs becomes an end with the outcome "failed".
        """
        spec = self._spec()
        born = self.child.born
        if born.branch:
            tree = Worktree(born.directory, born.branch, born.base)
            await self._trees.make(tree, spec.directory)
        async with self._open(spec) as session:
            try:
                await self._run_session(session, spec.agent)
            except Exception as error:  # its usage must be recorded in any case
                end = _to_failure(end_of(self.child.name, session), error)
                return self._with_unread_mail(end, session.view)
            end = self._with_unread_mail(end_of(self.child.name, session), session.view)
        # A child that is stopped before its turn has no turn with a reason.
        has_reason = end.outcome != "cancelled" or end.reason not in ("", "cancelled")
        if has_reason or not self._reason:
            return end
        return replace(end, reason=self._reason)

    def _with_unread_mail(self, end: ChildEnded, member: View) -> ChildEnded:
        """Return the end of a child, with the mail that a teammate has not read added to the
        reason.
        """
        if not self.child.born.teammate:
            return end
        from refold.agents.team import unread_mail

        unread = unread_mail(self.child, self._parent.view, member)
        if not unread:
            return end
        reason = end.reason if end.reason not in ("", "cancelled") else self._reason
        return replace(end, reason=f"{reason}; {unread}" if reason else unread)

    async def _run_session(self, session: Session, agent: Profile) -> None:
        """Send the child its task, and run the child until it is done or stopped."""
        make_events = partial(self._first_events, agent)
        await session.record.append_if(make_events, kept=True, author="parent")
        with self._abort:
            await self._wait_until_done(session)
        if self._abort.cancelled_caught:
            # Shorter than the first time, because the parent now waits without a limit.
            with anyio.move_on_after(self._grace / 2):
                await session.run_turns()  # settles the interrupted calls

    async def _wait_until_done(self, session: Session) -> None:
        """Run the child's turns while its questions and progress are passed to the parent."""
        from refold.agents.relay import Relay

        relay = Relay(self.child.born, session, self._parent)
        async with anyio.create_task_group() as group:
            group.start_soon(relay.relay_questions)
            group.start_soon(relay.relay_news)
            group.start_soon(self._cancel_when_stopped, session)
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
        """Return the teammate that this child is; None if the child is in no team."""
        board, patience = self._services.board, self._services.patience
        if not self.child.born.teammate or board is None:
            return None
        from refold.agents.teammate import Teammate

        return Teammate(self.child, session, self._parent, board, self._stop, patience)

    async def _run_turns(self, session: Session) -> None:
        """Run turns, including those that background commands begin, until none is left."""
        view = await self._run_until_settled(session)
        while self._awaits_command(view):
            with anyio.move_on_after(AWAITED_SECONDS) as self._command_wait:
                await session.record.wait_for_event(after=view.seq)
            if self._command_wait.cancelled_caught:
                return
            view = await self._run_until_settled(session)

    async def _run_until_settled(self, session: Session) -> View:
        """Run the turns that are due, and return the view.

        A turn that waits for the user is continued after the answer.
        """
        view = await session.run_turns()
        while view.turn.seq:  # the turn waits for the user
            await session.record.wait_for_event(after=view.seq)
            view = await session.run_turns()
        return view

    def _awaits_command(self, view: View) -> bool:
        """Whether the child must wait for a background command to wake it.

        False for a teammate: `Teammate.next_turn` waits for its commands and its mail.
        """
        if self._stop.is_set() or self.child.born.teammate:
            return False
        return bool(view.commands_to_await)

    async def _cancel_when_stopped(self, session: Session) -> None:
        await self._stop.wait()
        await session.inbox.cancel(self._reason)

    def _first_events(self, agent: Profile, view: View) -> tuple[Event, ...]:
        """Return the first events of the child: agent, mode, budget and task.

        Return () if the child's journal has them already.
        """
        if _TASK_KEY in view.account.client_keys:
            return ()
        mode = (ModeChanged(agent.mode),) if agent.mode else ()
        return (
            AgentChosen(agent.name),
            *mode,
            BudgetSet(self.child.granted),
            Said(self.child.born.task, "parent", client_key=_TASK_KEY),
        )

    async def _remove_tree(self, end: ChildEnded) -> ChildEnded:
        """Remove the working tree of the child, unless it has changed files or new commits.

        Return the end, which names the tree if it stays.
        """
        born = self.child.born
        if not born.branch:
            return end
        tree = Worktree(born.directory, born.branch, born.base)
        if await self._trees.remove_if_unchanged(tree):
            return end
        return replace(end, branch=born.branch, directory=born.directory)


def end_of(child: str, session: Session) -> ChildEnded:
    """Return the event for the end of a child, from the child's own journal."""
    view = session.view
    turn = view.turn
    outcome: Outcome = "cancelled"  # of a turn that is open or never began
    if not turn.seq and turn.outcome:
        outcome = turn.outcome
    default_reason = "" if outcome in _DONE_OUTCOMES else outcome
    denials = list[Denial]()
    for denial in turn.denials[:_MAX_DENIALS]:
        call = replace(denial.call, id=f"{child}/{denial.call.id}")
        denials.append(Denial(call, denial.reason))
    return ChildEnded(
        child,
        outcome,
        status=_status(outcome, turn.answer),
        text=turn.answer,
        reason=turn.reason or default_reason,
        spent=view.account.spent + view.account.children_spent,
        head=session.record.head,
        as_json=turn.as_json,
        denials=tuple(denials),
        outside=view.outside_text.ever,
    )


def _to_failure(end: ChildEnded, error: Exception) -> ChildEnded:
    cause = first(error)
    reason = str(cause) or type(cause).__name__
    return replace(end, outcome="failed", status="failed", reason=reason)


def _status(outcome: Outcome, text: str) -> Literal["done", "partial", "failed"]:
    """Return how a child ended, judged by the outcome and the `text` of its last turn."""
    if outcome in _DONE_OUTCOMES:
        return "done"
    if outcome in _PAUSED_OUTCOMES:
        return "partial"
    has_text = bool(text.strip())
    return "partial" if has_text and outcome != "failed" else "failed"


def report_of(end: ChildEnded, view: View) -> Report:
    """Return the report on a child for the call that started it."""
    child = view.children.child(end.child)
    tree = worktree_of(child.born) if child else None
    note = ""
    if tree:
        short_commit = tree.base[:_SHORT_COMMIT_CHARS]
        note = f"\n\n{NOT_IN_WORKTREE.format(base=short_commit)}"
    return Report(
        end.child, end.status, end.text + note, end.reason, end.branch, end.directory
    )


async def background_report(end: ChildEnded, record: Recorder, longest: int) -> str:
    """Return the report on a background child as a message in the conversation.

    The child's text cannot close the tags around it, and has at most about `longest`
    characters.
    """
    child = record.view.children.child(end.child)
    agent = child.born.agent if child else ""
    teammate = child.born.teammate if child else ""
    teammate_attribute = f' teammate="{teammate}"' if teammate else ""
    report = report_text(report_of(end, record.view))
    cut_report = await _cut_and_store(report, record, longest)
    text = between_tags(cut_report, "child", "mail")
    attributes = (
        f'name="{end.child}"{teammate_attribute} agent="{agent}" status="{end.status}"'
    )
    return f"<child {attributes}>\n{text}\n</child>"


def worktree_of(born: ChildBorn) -> Worktree | None:
    """Return the working tree of a child; None if it works in its parent's workspace."""
    return Worktree(born.directory, born.branch, born.base) if born.branch else None


async def _cut_and_store(text: str, record: Recorder, longest: int) -> str:
    """Return `text`, cut in the middle if it is longer than `longest`.

    The whole of a cut text is stored as a blob, which the result names.
    """
    if len(text) <= longest:
        return text
    try:
        name = await record.put(clean(text).encode())
        hint = f'read_file with path "blob:{name}" reads the whole'
    except JournalError as error:
        hint = f"the full text could not be stored: {error}"
    half = longest // 2
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n[… {omitted} characters are left out; {hint} …]\n{text[-half:]}"
