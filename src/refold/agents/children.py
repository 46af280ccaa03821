"""Starts the subagents of one session, within its limits, and records their ends.

Implements the port `tools.task.ChildStarter`. A child belongs to a tool call and is found by
that call, so a call that is resumed after a crash continues with the same child. `child` runs
one child, `child_admission` decides whether another may start, `relay` passes questions and
progress to the parent, `budget_grant` computes grants.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.agents.child import (
    GRACE_SECONDS,
    ChildRequest,
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
from refold.engine.checkpoint import mark_files_changed, save
from refold.engine.world import World
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import ChildEnded, ChildStopped
from refold.journal.events.kinds import Entry, Event, Said, Stopped
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.tools.task import Report, TaskRequest
from refold.tools.todo import Board
from refold.values.tools import IDLE, LEADING, OF_TEAMMATES, TASK, TEAM, Effect

if TYPE_CHECKING:  # a start has no subagent
    from refold.agents.budget_grant import GrantQueue
    from refold.agents.child_admission import ChildAdmission
    from refold.tools.team import TeammateRequest

# Tools that no child gets: a child makes no plans with the user, does not notify the user and
# does not write to memory.
_NEVER_TOOLS = ("enter_plan_mode", "memory_write", "notify")
_BOARD_TOOLS = ("task_get", "task_update", "task_list", "task_claim")


class CodeInputs(Struct, frozen=True, kw_only=True):
    """The inputs that code passes to a child besides its task. `ChildSpec` describes them."""

    context: Mapping[str, object] = {}
    schema: Raw | None = None


_NO_INPUTS = CodeInputs()


def _with_team_tools(agent: Profile) -> Profile:
    """Return the agent with all tools of a team and of its task board.

    The tools of the board are not deferred then.
    """
    tools = (*agent.tools, *OF_TEAMMATES, *_BOARD_TOOLS)
    deferred = tuple(name for name in agent.deferred if not name.startswith("task_"))
    return replace(agent, deferred=deferred, tools=tools)


class Children:
    """The children of the session `id_`, with the journal `record`.

    Call `begin_turn` when a turn begins. `find` returns the profile of an agent that can be
    a child, or raises `BadInput`.
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
        self._record = record
        self._id = id_
        self._find = find
        self._trees = trees
        # Children below have less time, so that each parent can wait for its own.
        grace_seconds = GRACE_SECONDS / (position.depth + 1)
        self._services = ChildServices(open_, trees, grace_seconds)
        self.position = position
        self.board: Board | None = None  # of the team; None if the session has no team
        self.patience = self._services.patience
        self._world: World | None = None
        self._run_places = anyio.Semaphore(position.at_once)
        self._background_group: TaskGroup | None = None
        self._running = dict[str, ChildRun]()  # by name

    def begin_turn(self, world: World) -> None:
        """Set the world of this turn, from which children inherit rights, budget and
        tools.
        """
        self._world = world

    @cached_property
    def _admission(self) -> "ChildAdmission":
        """Return the checks that a new child must pass."""
        from refold.agents.child_admission import ChildAdmission

        record, find = self._record, self._find
        return ChildAdmission(record, self._id, find, self._trees, self.position)

    @cached_property
    def _grant_queue(self) -> "GrantQueue":
        from refold.agents.budget_grant import GrantQueue

        return GrantQueue()

    async def run(self, call_id: str, task: TaskRequest) -> Report:
        """Run a child for the tool `task`, and return the report. A background child is only
        started.
        """
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
            self._run_in_background(child)
            return Report(child.name, "runs")
        return report_of(child.end, self._record.view)

    async def spawn(self, call_id: str, request: "TeammateRequest") -> str:
        """Start a teammate, and return the name of its session.

        Raises `ToolFailed` if this session cannot lead a team, or if no teammate can be added.
        """
        from refold.agents.team import first_words

        view = self._record.view
        child = view.children.of_call(call_id)
        if child is None:
            is_root = self.position.depth == 0
            may_start_children = self.position.deepest > 0
            if self.board is None or not is_root or not may_start_children:
                raise ToolFailed("Only the agent of the user leads a team.")
            first_message = first_words(request, view)
            task = TaskRequest(request.agent, first_message, request.role, background=True)
            child_request = ChildRequest(call_id, task, teammate=request.name)
            child = await self._admission.admit(child_request, self._turn)
        if child.end is None:
            self._run_in_background(child)
        return child.name

    async def run_request(
        self, request: ChildRequest, inputs: CodeInputs = _NO_INPUTS
    ) -> ChildEnded:
        """Run the child of this request to its end. Raises `ToolFailed`.

        If the child exists already, it is resumed. `inputs` are not recorded: a call that is
        resumed passes them again.
        """
        async with self._run_places:
            child = await self._admission.admit(request, self._turn)
            if child.end is None:
                await self._run_child(self._child_run(child, inputs))
        ended_child = self._record.view.children.child(child.name)
        # Its end was recorded, or recording has raised an error.
        assert ended_child is not None
        assert ended_child.end is not None
        return ended_child.end

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Run background children within the block, also those started before a restart."""
        unsubscribe = self._record.hub.subscribe(self._on_event)
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
            unsubscribe()

    def _on_event(self, entry: Entry) -> None:
        """Stop the child that this event names, or all background children if the turn is
        stopped.
        """
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
        """Continue or stop the children that a crash interrupted.

        If the turn was stopped, all these children are stopped. Otherwise background children
        continue. A child whose call still waits is continued by that call, and every other
        child is stopped.
        """
        view = self._record.view
        stopped = view.turn.stopped
        for child in view.children.running:
            call = view.conversation.call(child.born.call_id)
            waited_for = call is not None and call.result is None
            if stopped is not None:
                self._run_in_background(child, stopped.reason)
            elif child.born.background:
                self._run_in_background(child)
            elif not waited_for:
                self._run_in_background(child, "its result is no longer needed")

    def _run_in_background(self, child: Child, stop_reason: str = "") -> None:
        """Run a child in the background. With a `stop_reason`, stop the child and record its
        end.
        """
        if child.name in self._running or self._background_group is None:
            return
        child_run = self._child_run(child)
        if stop_reason:
            child_run.stop(stop_reason)
        self._background_group.start_soon(self._run_child, child_run, self._run_places)

    async def _run_child(
        self, child_run: ChildRun, places: anyio.Semaphore | None = None
    ) -> None:
        """Run a child, after saving a checkpoint of the parent's files for a later rewind."""
        has_own_tree = bool(child_run.child.born.branch)
        may_change_files = not has_own_tree and self._may_write(child_run.child)
        try:
            if may_change_files:
                await save(self._turn, self._record)
            await child_run.run(places)
        finally:
            self._running.pop(child_run.child.name, None)
            if may_change_files:
                mark_files_changed(self._turn)

    def _may_write(self, child: Child) -> bool:
        """Whether the child's agent may change files or run commands.

        False if the agent no longer exists.
        """
        try:
            return bool(self._find(child.born.agent).effects & {Effect.CHANGE, Effect.RUN})
        except BadInput:  # there is no agent of that name any more
            return False

    def _child_run(self, child: Child, inputs: CodeInputs = _NO_INPUTS) -> ChildRun:
        """Return a new run of this child, which has not begun, and list the run as running."""
        current = self._record.view.children.child(child.name) or child
        spec = partial(self._spec, current, inputs)
        services = replace(self._services, board=self.board, patience=self.patience)
        child_run = ChildRun(current, spec, services, self._record, self._record_end)
        self._running[child.name] = child_run
        if current.stopped:  # it was stopped before a restart, or before it began
            child_run.stop(current.stopped)
        return child_run

    def _spec(self, child: Child, inputs: CodeInputs) -> ChildSpec:
        """Return how to open the session of a child: its tools, rights and directory."""
        from refold.agents.budget_grant import ChildGrant
        from refold.agents.inherited_rights import InheritedRights

        world = self._turn
        born = child.born
        agent = self._find(born.agent)
        tool_names = frozenset(world.tool_names)
        is_started_by_code = bool(born.key)
        position = replace(
            self.position,
            depth=self.position.depth + 1,
            coded=self.position.coded + (1 if is_started_by_code else 0),
        )
        never = _NEVER_TOOLS if agent.mode == "plan" else (*_NEVER_TOOLS, "exit_plan_mode")
        team = None
        if born.teammate:
            from refold.agents.team import Team

            team = Team(self._record, born.teammate)
            agent = _with_team_tools(agent)
            tool_names |= {IDLE}
            never += (TASK, *LEADING)
            position = replace(position, deepest=position.depth)  # it starts no children
        else:
            never += TEAM
        role: Role = born.level or agent.role  # pyright: ignore[reportAssignmentType] - a role, by `TaskRequest`
        tree = worktree_of(born)
        directory = self._services.trees.child_directory(tree) if tree else ""
        # The tree is that of the repository; its directory may be below the root.
        roots = (tree.directory,) if tree and tree.directory != directory else ()
        return ChildSpec(
            id=f"{self._id}/{born.child}",
            agent=replace(agent, role=role, without=(*agent.without, *never)),
            parent=InheritedRights(self._record, world, self._record.hub.subscribe),
            grant=ChildGrant(
                self._record, lambda: self._turn, born.child, self._grant_queue
            ),
            shared=world.lineage.shared,
            reading=world.read_rules,
            tools=tool_names,
            address=f"{world.lineage.address}/{born.child}",
            position=position,
            directory=directory,
            roots=roots,
            attached=born.attached,
            context=inputs.context,
            schema=inputs.schema,
            team=team,
            claim=self._record.claim,
        )

    async def _record_end(self, end: ChildEnded) -> None:
        """Record the end of a child, once; for a background child, together with the report."""
        owned_tasks = await self._find_owned_tasks(end.child)
        if owned_tasks:
            tasks = ", ".join(f"#{id_}" for id_ in owned_tasks)
            own_reason = f"{end.reason}; " if end.reason else ""
            end = replace(
                end, reason=f"{own_reason}what it had not completed is free again: {tasks}"
            )
        report = await background_report(end, self._record, self._turn.longest_result)

        def make_events(view: View) -> tuple[Event, ...]:
            """Return the event of the end, after a report if a report is due.

            Return () if the end is recorded already.
            """
            child = view.children.child(end.child)
            if child is None or child.end is not None:
                return ()
            turn = view.turn
            needs_report = child.born.background and turn.seq and turn.stopped is None
            key = f"{end.child} ended"
            if not needs_report or key in view.account.client_keys:
                return (end,)
            # The end is recorded last. After a crash between the two events, this runs
            # again, and the client key prevents a second report.
            return (Said(report, end.child, client_key=key), end)

        await self._record.append_if(make_events, kept=True, author=end.child)
        if owned_tasks:
            await self._free_tasks()

    async def _find_owned_tasks(self, name: str) -> Sequence[int]:
        """Return the numbers of the tasks on the board on which a teammate works."""
        child = self._record.view.children.child(name)
        if self.board is None or child is None or not child.born.teammate:
            return ()
        from refold.agents.teammate import find_owned

        return await find_owned(self.board, f"{self._id}/{name}")

    async def _free_tasks(self) -> None:
        """Make the board's tasks that ended teammates had in progress free again."""
        children = self._record.view.children.children
        ended = [child.name for child in children if child.born.teammate and child.end]
        if ended and self.board is not None:
            from refold.agents.teammate import free_tasks

            await free_tasks(self.board, [f"{self._id}/{name}" for name in ended])

    @property
    def _turn(self) -> World:
        assert self._world is not None  # a turn is running
        return self._world
