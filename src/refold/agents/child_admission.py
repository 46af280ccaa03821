"""Decides whether a session may start another subagent, and records the start of those that it
admits.

`children` starts and runs the child; `budget_grant` computes its budget.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from refold.agents.budget_grant import may_come_back, new_grant
from refold.agents.child import ChildRequest, TreePosition
from refold.agents.profile import Profile
from refold.agents.worktree import Worktrees
from refold.engine.budget import NOTHING_LEFT, request_more
from refold.engine.world import World
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import ChildBorn
from refold.journal.state.children import Child
from refold.journal.state.fold import View, budget_of
from refold.session.recorder import Recorder
from refold.tools.task import TaskRequest
from refold.values.usage import Estimate

# The cost of the first call is not known yet, so nothing is estimated for it.
_FIRST_COST = Estimate(dollars=0.0, tokens=0)


class ChildAdmission:
    """Records `ChildBorn`, once for each request, if limits and budget allow another child.

    The grant is computed from the same view to which the event is appended.
    """

    def __init__(
        self,
        record: Recorder,
        id_: str,
        find: Callable[[str], Profile],
        trees: Worktrees,
        position: TreePosition,
    ) -> None:
        self._record = record
        self._id = id_
        self._find = find
        self._trees = trees
        self._position = position

    async def admit(self, request: ChildRequest, world: World) -> Child:
        """Return the child of this request, after recording its start if it is new.

        Raises `ToolFailed` if limits or budget do not allow another child.
        """
        child = self._find_child(request)
        while child is None:
            agent = self._find_agent(request.task)
            if self._is_full(self._record.view, world):
                raise ToolFailed(self._too_many_text)
            base = await self._find_base() if request.task.worktree else ""
            make_events = partial(self._make_born, request, agent.name, base, world)
            is_recorded = await self._record.append_if(make_events, kept=True)
            # If it is full by now, the next round raises the error.
            if not is_recorded and not self._is_full(self._record.view, world):
                await self._wait_for_budget(world)
            child = self._find_child(request)
        return child

    async def _find_base(self) -> str:
        """Return the commit at which the working tree of a child begins.

        Raises `ToolFailed` if there is none.
        """
        try:
            return await self._trees.base()
        except ToolFailed as error:
            raise ToolFailed(f"{error}. You can call task without worktree.") from error

    def _find_child(self, request: ChildRequest) -> Child | None:
        return self._record.view.children.of_call(request.call_id, request.key, request.n)

    def _make_born(
        self, request: ChildRequest, agent: str, base: str, world: World, view: View
    ) -> tuple[ChildBorn, ...]:
        """Return the event of a new child.

        Return () if the child exists already, or if limits or budget do not allow it. `base` is
        the commit at which the child's own working tree begins; "" means that it has none.
        """
        task = request.task
        budget = budget_of(view, world.budget)
        grant = new_grant(
            view, budget, _FIRST_COST, parent_has_grant=world.lineage.grant is not None
        )
        child = view.children.of_call(request.call_id, request.key, request.n)
        if grant is None or child is not None:
            return ()
        if self._is_full(view, world):
            return ()
        if request.teammate:
            from refold.agents.team import check_new

            check_new(request.teammate, view)
        world.lineage.shared.set_child_count(
            world.lineage.address, _count_started(view) + 1
        )
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
        return (
            replace(born, directory=tree.directory, branch=tree.branch, base=tree.base),
        )

    def _is_full(self, view: View, world: World) -> bool:
        """Whether the tree has started its maximum of children in this turn of its root."""
        lineage = world.lineage
        if not self._position.depth:  # this session is the root
            lineage.shared.begin_root_turn(view.turn.seq)
        others = lineage.shared.child_count_of_others(lineage.address)
        return _count_started(view) + others >= self._position.total

    @property
    def _too_many_text(self) -> str:
        """The sentence for a model that has reached the limit of subagents in a turn."""
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
        has_more = await request_more(
            _FIRST_COST, world.budget, world.lineage.grant, self._record
        )
        if not has_more:
            raise ToolFailed(f"No agent was started: {NOTHING_LEFT}.")

    def _find_agent(self, task: TaskRequest) -> Profile:
        """Return the agent that the task names. Raises `ToolFailed` if there is none."""
        try:
            return self._find(task.agent)
        except BadInput as error:
            raise ToolFailed(f"{error}.") from error


def _count_started(view: View) -> int:
    """Return the number of children started in this turn. Resumed children do not count."""
    count = 0
    for child in reversed(view.children.children):  # the newest is the last
        if child.seq <= view.turn.seq:  # it was started before this turn
            break
        count += 1
    return count
