"""The subagents of one session: starts them within its limits and records their ends.

Implements the port `tools.task.ChildStarter`. A child belongs to a tool call and is found by
that call, so a call that is resumed after a crash continues with the same child. `child` runs
one child, `relay` passes questions and progress to the parent, `budget_grant` has the sums.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.agents.budget_grant import ChildGrant, GrantQueue, may_come_back, new_grant
from refold.agents.child import (
    GRACE_SECONDS,
    ChildRun,
    ChildServices,
    ChildSpec,
    Open,
    TreePosition,
    background_report,
    report_of,
    worktree_of,
)
from refold.agents.profile import Profile, Role
from refold.agents.worktree import Worktrees
from refold.engine.authorize import effective_mode, judge
from refold.engine.budget import NOTHING_LEFT, request_more
from refold.engine.checkpoint import mark_files_changed, save
from refold.engine.world import Record, World
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import ChildBorn, ChildEnded, ChildStopped
from refold.journal.events.kinds import Entry, Event, Said, Stopped
from refold.journal.state.children import Child
from refold.journal.state.fold import View, budget_of
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import Rule
from refold.session.recorder import Recorder
from refold.tools.task import Report, TaskRequest
from refold.tools.todo import Board
from refold.values.modes import Mode
from refold.values.tools import IDLE, LEADING, OF_TEAMMATES, TASK, TEAM, Effect
from refold.values.usage import Estimate

if TYPE_CHECKING:
    from refold.tools.team import TeammateRequest

# Tools that no child gets: it neither plans with the user nor calls them, nor writes to memory.
_NEVER_TOOLS = ("enter_plan_mode", "memory_write", "notify")
_BOARD_TOOLS = ("task_get", "task_update", "task_list", "task_claim")
_FIRST_COST = Estimate(0.0, 0)  # the cost of the first call is not known yet


class ChildRequest(Struct, frozen=True):
    """A child that a call asks for. `key` and `n` distinguish the children of one call."""

    call_id: str
    task: TaskRequest
    key: str = ""
    n: int = 0
    attached: str = ""
    teammate: str = ""


class CodeInputs(Struct, frozen=True, kw_only=True):
    """What code passes to a child besides its task: see `ChildSpec`."""

    context: Mapping[str, object] = {}
    schema: Raw | None = None


_NO_INPUTS = CodeInputs()


class Children:
    """The children of the session `id_`, with the journal `record`. Call `begin_turn` when a turn begins.

    `find` returns the profile of an agent that can be a child, or raises `BadInput`.
    """

    def __init__(
        self,
        record: Recorder,
        id_: str,
        open_: Open,
        find: Callable[[str], Profile],
        trees: Worktrees,
        position: TreePosition,
    ) -> None:
        self._record, self._id, self._find = record, id_, find
        self._admission = ChildAdmission(record, id_, find, trees, position)
        self._services = ChildServices(open_, trees, GRACE_SECONDS / (position.depth + 1))
        self.position = position
        self.board: Board | None = None  # of its team; None if it can have none
        self.patience = self._services.patience
        self._world: World | None = None
        self._places = anyio.Semaphore(position.at_once)
        self._queue = GrantQueue()
        self._background_group: TaskGroup | None = None
        self._running = dict[str, ChildRun]()  # by name

    def begin_turn(self, world: World) -> None:
        """Set the rights, the budget and the tools of this turn: its children inherit them."""
        self._world = world

    async def run(self, call_id: str, task: TaskRequest) -> Report:
        """Run a child for the tool `task`; a background child is started only."""
        max_depth = self.position.deepest
        if self.position.depth >= max_depth:
            raise ToolFailed(
                f"Agents work {max_depth} levels deep and no deeper: do it yourself."
            )
        if not task.background:
            end = await self.run_request(ChildRequest(call_id, task))
            return report_of(end, self._record.view)
        child = await self._admission.admit(ChildRequest(call_id, task), self._turn)
        if child.end is None:
            self._start_in_background(child)
            return Report(child.name, "runs")
        return report_of(child.end, self._record.view)

    async def spawn(self, call_id: str, request: "TeammateRequest") -> str:
        """Start a teammate, and return the name of its session. Raises `ToolFailed`."""
        from refold.agents.team import first_words

        view = self._record.view
        child = view.children.of_call(call_id)
        if child is None:
            if self.board is None or self.position.depth or not self.position.deepest:
                raise ToolFailed("Only the agent of the user leads a team.")
            words = first_words(request, view)
            task = TaskRequest(request.agent, words, request.role, background=True)
            asked = ChildRequest(call_id, task, teammate=request.name)
            child = await self._admission.admit(asked, self._turn)
        if child.end is None:
            self._start_in_background(child)
        return child.name

    async def run_request(
        self, request: ChildRequest, inputs: CodeInputs = _NO_INPUTS
    ) -> ChildEnded:
        """Run the child of this request to its end. Raises `ToolFailed`.

        It is resumed if it exists, else started. `inputs` are not recorded: a call that is resumed
        passes them again.
        """
        async with self._places:
            child = await self._admission.admit(request, self._turn)
            if child.end is None:
                await self._run_child(self._child_run(child, inputs))
        ended_child = self._record.view.children.child(child.name)
        assert ended_child is not None  # its end was recorded, or recording has raised
        assert ended_child.end is not None
        return ended_child.end

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Run background children while in this context, also those started before a restart."""
        leave = self._record.hub.subscribe(self._on_event)
        try:
            async with anyio.create_task_group() as group:
                self._background_group = group
                await self._free_tasks()
                self._resume_children()
                try:
                    yield
                finally:
                    self._background_group = None
                    self._stop_background("the turn that it worked for has ended")
                    group.cancel_scope.cancel()
        finally:
            leave()

    def _on_event(self, entry: Entry) -> None:
        """Stop one child, or all background children when the turn is stopped."""
        match entry.event:
            case ChildStopped(name, reason) if name in self._running:
                self._running[name].stop(reason)
            case Stopped(reason):
                self._stop_background(reason)
            case _:
                pass

    def _stop_background(self, reason: str) -> None:
        for child_run in self._running.values():
            if child_run.background:
                child_run.stop(reason)

    def _resume_children(self) -> None:
        """Continue or stop the children that a crash interrupted and no call waits for."""
        view = self._record.view
        stopped = view.turn.stopped
        for child in view.children.running:
            call = view.conversation.call(child.born.call_id)
            waited_for = call is not None and call.result is None
            if stopped is not None:
                self._start_in_background(child, stopped.reason)
            elif child.born.background:
                self._start_in_background(child)
            elif not waited_for:
                self._start_in_background(child, "its result is no longer needed")

    def _start_in_background(self, child: Child, stop_reason: str = "") -> None:
        if child.name not in self._running and self._background_group is not None:
            child_run = self._child_run(child)
            if stop_reason:
                child_run.stop(stop_reason)
            self._background_group.start_soon(self._run_child, child_run, self._places)

    async def _run_child(
        self, child_run: ChildRun, places: anyio.Semaphore | None = None
    ) -> None:
        """Run a child after a checkpoint of the parent's files, for a later rewind."""
        writes = child_run.child.born.branch == "" and self._may_write(child_run.child)
        try:
            if writes:
                await save(self._turn, self._record)
            await child_run.run(places)
        finally:
            self._running.pop(child_run.child.name, None)
            if writes:
                mark_files_changed(self._turn)

    def _may_write(self, child: Child) -> bool:
        try:
            return bool(self._find(child.born.agent).effects & {Effect.CHANGE, Effect.RUN})
        except BadInput:
            return False

    def _child_run(self, child: Child, inputs: CodeInputs = _NO_INPUTS) -> ChildRun:
        current = self._record.view.children.child(child.name) or child
        spec = partial(self._spec, current, inputs)
        services = replace(self._services, board=self.board, patience=self.patience)
        child_run = ChildRun(current, spec, services, self._record, self._record_end)
        self._running[child.name] = child_run
        if current.stopped:  # stopped before a restart, or before it began
            child_run.stop(current.stopped)
        return child_run

    def _spec(self, child: Child, inputs: CodeInputs) -> ChildSpec:
        world, born, here = self._turn, child.born, self.position
        agent = self._find(born.agent)
        never = _NEVER_TOOLS if agent.mode == "plan" else (*_NEVER_TOOLS, "exit_plan_mode")
        team, names = None, frozenset(world.tool_names)
        if born.teammate:
            from refold.agents.team import Team

            team = Team(self._record, born.teammate)
            rare = tuple(n for n in agent.deferred if not n.startswith("task_"))
            tools = (*agent.tools, *OF_TEAMMATES, *_BOARD_TOOLS)  # explorers have mail, too
            agent, names = replace(agent, deferred=rare, tools=tools), names | {IDLE}
            never += (TASK, *LEADING)
            here = replace(here, deepest=here.depth + 1)
        else:
            never += TEAM
        role: Role = born.level or agent.role  # pyright: ignore[reportAssignmentType] - a role, by `TaskRequest`
        tree = worktree_of(born)
        directory = self._services.trees.child_directory(tree) if tree else ""
        return ChildSpec(
            id=f"{self._id}/{born.child}",
            agent=replace(agent, role=role, without=(*agent.without, *never)),
            parent=InheritedRights(self._record, world, self._record.hub.subscribe),
            grant=ChildGrant(self._record, lambda: self._turn, born.child, self._queue),
            shared=world.lineage.shared,
            reading=world.read_rules,
            tools=names,
            address=f"{world.lineage.address}/{born.child}",
            position=replace(here, depth=here.depth + 1, coded=here.coded + bool(born.key)),
            directory=directory,
            roots=(tree.directory,) if tree and tree.directory != directory else (),
            attached=born.attached,
            context=inputs.context,
            schema=inputs.schema,
            team=team,
            claim=self._record.claim,
        )

    async def _record_end(self, end: ChildEnded) -> None:
        """Record the end once, together with the report of a background child."""
        owned = await self._find_owned_tasks(end.child)
        if owned:
            tasks = ", ".join(f"#{id_}" for id_ in owned)
            why = f"{end.reason}; " if end.reason else ""
            end = replace(
                end, reason=f"{why}what it had not completed is free again: {tasks}"
            )
        words = await background_report(end, self._record, self._turn.longest_result)

        def make_events(view: View) -> tuple[Event, ...]:
            child = view.children.child(end.child)
            if child is None or child.end is not None:
                return ()
            hears = child.born.background and view.turn.seq and view.turn.stopped is None
            key = f"{end.child} ended"
            if not hears or key in view.account.client_keys:
                return (end,)
            # The end comes last: after a crash between the two, this runs again, and the client
            # key prevents a second report.
            return (Said(words, end.child, client_key=key), end)

        await self._record.append_if(make_events, kept=True, author=end.child)
        if owned:
            await self._free_tasks()

    async def _find_owned_tasks(self, name: str) -> Sequence[int]:
        """The tasks of the board that a teammate works on."""
        child = self._record.view.children.child(name)
        if self.board is None or child is None or not child.born.teammate:
            return ()
        from refold.agents.teammate import find_owned

        return await find_owned(self.board, f"{self._id}/{name}")

    async def _free_tasks(self) -> None:
        """Free the tasks of ended teammates, also after a crash."""
        family = self._record.view.children.children
        ended = [child.name for child in family if child.born.teammate and child.end]
        if ended and self.board is not None:
            from refold.agents.teammate import free_tasks

            await free_tasks(self.board, [f"{self._id}/{name}" for name in ended])

    @property
    def _turn(self) -> World:
        assert self._world is not None  # a turn is running
        return self._world


class ChildAdmission:
    """Records `ChildBorn`, once for a request, if limits and budget allow another child.

    The grant is computed from the same view that the event is appended to.
    """

    def __init__(
        self,
        record: Recorder,
        id_: str,
        find: Callable[[str], Profile],
        trees: Worktrees,
        position: TreePosition,
    ) -> None:
        self._record, self._id, self._find, self._trees = record, id_, find, trees
        self._position = position

    async def admit(self, request: ChildRequest, world: World) -> Child:
        """The child of this request, recorded now unless it exists. Raises `ToolFailed`."""
        child = self._find_child(request)
        while child is None:
            agent = self._agent(request.task)
            if self._is_full(self._record.view, world):
                raise ToolFailed(self._too_many_text)
            base = await self._find_base() if request.task.worktree else ""
            make_events = partial(self._make_born, request, agent.name, base, world)
            born = await self._record.append_if(make_events, kept=True)
            if not born and not self._is_full(self._record.view, world):
                await self._wait_for_budget(world)
            child = self._find_child(request)
        return child

    async def _find_base(self) -> str:
        """The commit at which the working tree of a child begins. Raises `ToolFailed`."""
        try:
            return await self._trees.base()
        except ToolFailed as error:
            raise ToolFailed(f"{error}. You can call task without worktree.") from error

    def _find_child(self, request: ChildRequest) -> Child | None:
        return self._record.view.children.of_call(request.call_id, request.key, request.n)

    def _make_born(
        self, request: ChildRequest, agent: str, base: str, world: World, view: View
    ) -> tuple[ChildBorn, ...]:
        task, budget = request.task, budget_of(view, world.budget)
        grant = new_grant(view, budget, _FIRST_COST, lent=world.lineage.grant is not None)
        if grant is None or view.children.of_call(request.call_id, request.key, request.n):
            return ()
        if self._is_full(view, world):
            return ()
        if request.teammate:
            from refold.agents.team import check_new

            check_new(request.teammate, view)
        world.lineage.shared.set_child_count(world.lineage.address, _count_born(view) + 1)
        born = ChildBorn(
            view.children.next_name,
            request.call_id,
            agent,
            task.prompt,
            key=request.key,
            n=request.n,
            level=task.level,
            background=task.background,
            grant=grant,
            attached=request.attached,
            title=task.title,
            teammate=request.teammate,
        )
        if not base:
            return (born,)
        tree = self._trees.tree_of_child(self._id, born.child, base)
        child = replace(born, directory=tree.directory, branch=tree.branch, base=tree.base)
        return (child,)

    def _is_full(self, view: View, world: World) -> bool:
        """Whether the tree has started its maximum of children in this turn of its root."""
        lineage = world.lineage
        if not self._position.depth:
            lineage.shared.begin_root_turn(view.turn.seq)
        others = lineage.shared.child_count_of_others(lineage.address)
        return _count_born(view) + others >= self._position.total

    @property
    def _too_many_text(self) -> str:
        return (
            f"No agent was started: {self._position.total} were started in this turn, by all "
            "agents together, and no more may be (the setting subagents.max_per_turn). Do the rest "
            "yourself, or say what is left to do."
        )

    async def _wait_for_budget(self, world: World) -> None:
        """Wait until a grant may be possible. Raises `ToolFailed` if the budget is used up.

        Siblings return most of their grants when they end, so a new child waits for them.
        """
        view = self._record.view
        if may_come_back(view, budget_of(view, world.budget)):
            while self._record.view.turn.granted == view.turn.granted:
                await self._record.wait_for_event(after=self._record.view.seq)
            return
        if not await request_more(
            _FIRST_COST, world.budget, world.lineage.grant, self._record
        ):
            raise ToolFailed(f"No agent was started: {NOTHING_LEFT}.")

    def _agent(self, task: TaskRequest) -> Profile:
        try:
            return self._find(task.agent)
        except BadInput as error:
            raise ToolFailed(f"{error}.") from error


def _count_born(view: View) -> int:
    """The number of children started in this turn; a child that was resumed does not count."""
    began = view.turn.seq
    newest = reversed(view.children.children)
    return sum(1 for _ in takewhile(lambda each: each.seq > began, newest))


Subscribe = Callable[[Callable[[Entry], None]], Callable[[], None]]


class InheritedRights:
    """The rights of the parent at each moment, as the engine's port `ParentRights`.

    `world` is that of the parent's turn. The rules of the parent and of its own parents are applied
    to the workspace of the child, which may be another.
    """

    def __init__(self, record: Record, world: World, subscribe: Subscribe) -> None:
        self._record, self._world, self._subscribe = record, world, subscribe

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        above = self._world.lineage.parent
        leaving = [
            self._subscribe(listener),
            *([above.subscribe(listener)] if above else ()),
        ]

        def leave() -> None:
            for unsubscribe in leaving:
                unsubscribe()

        return leave

    def judge(self, access: Access, facts: Facts) -> Decision:
        world = self._world
        policy_context = _ChildPolicyContext(world.rules, world.mode, lambda: facts)
        return judge(access, policy_context, self._record.view, parent=world.lineage.parent)

    @property
    def mode(self) -> Mode:
        return effective_mode(self._world, self._record.view, self._world.lineage.parent)

    @property
    def grants(self) -> Sequence[str]:
        above = self._world.lineage.parent
        return (*(above.grants if above else ()), *self._record.view.rights.granted)


class _ChildPolicyContext(Struct, frozen=True):
    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]
