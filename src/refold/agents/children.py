"""The children of one session: which there are to be, and what their parent is told.

Implements `tools.task.Children`. A child belongs to a call, and is found again by it: so
a call that a crash cut off goes on with the child it had. What a child lives through is
the business of `child`, what passes between the two that of `relay`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.agents.birth import Births, Wish
from refold.agents.budget_grant import ChildGrant, Drawers
from refold.agents.child import GRACE, Life, Open, Opening, Position, Ways
from refold.agents.child_report import of_a_tree, report_of, said_beside
from refold.agents.parent_rights import InheritedRights
from refold.agents.profile import Profile, Role
from refold.agents.worktree import Worktrees
from refold.engine.checkpoint import changed, save
from refold.engine.world import World
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import ChildEnded, ChildStopped
from refold.journal.events.kinds import Entry, Event, Said, Stopped
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.tools.task import Errand, Report
from refold.values.tools import Effect

# What a child has no use for: it plans with nobody, and nobody asked it to remember.
_NEVER = ("enter_plan_mode", "memory_write")
_WRITING = frozenset((Effect.CHANGE, Effect.RUN))


class Luggage(Struct, frozen=True, kw_only=True):
    """What a child of code is given besides its errand: see `Opening`."""

    context: Mapping[str, object] = {}
    schema: Raw | None = None


_NOTHING = Luggage()


class Children:
    """Of the session `id_`, whose journal is `record`. Call `at` when a turn begins.

    `find` gives the profile of an agent that works for others, or raises `BadInput`.
    """

    def __init__(
        self,
        record: Recorder,
        id_: str,
        open_: Open,
        find: Callable[[str], Profile],
        trees: Worktrees,
        position: Position,
    ) -> None:
        self._record, self._id, self._find = record, id_, find
        self._births = Births(record, id_, find, trees, position)
        self._ways = Ways(open_, trees, GRACE / (position.depth + 1))
        self.position = position
        self._world: World | None = None
        self._places = anyio.Semaphore(position.at_once)
        self._drawers = Drawers()
        self._beside: TaskGroup | None = None
        self._lives = dict[str, Life]()  # of those that are at work

    def at(self, world: World) -> None:
        """What the session may do from now on, and so its children."""
        self._world = world

    async def run(self, call_id: str, errand: Errand) -> Report:
        """Do what `task` asks for."""
        most = self.position.deepest
        if self.position.depth >= most:
            raise ToolFailed(
                f"Agents work {most} levels deep and no deeper: do it yourself."
            )
        if not errand.beside:
            return report_of(await self.born(Wish(call_id, errand)), self._record.view)
        child = await self._births.child(Wish(call_id, errand), self._now)
        if child.end is None:
            self._begin_beside(child)
            return Report(child.name, "runs")
        return report_of(child.end, self._record.view)

    async def born(self, wish: Wish, more: Luggage = _NOTHING) -> ChildEnded:
        """The end of the child that was born for this, or is born now. Raises `ToolFailed`.

        What is in `more` is not kept: a call that is made again brings it again.
        """
        async with self._places:
            child = await self._births.child(wish, self._now)
            if child.end is None:
                await self._lived(self._life(child, more))
        found = self._record.view.children.child(child.name)
        assert found is not None  # its end was recorded, or that has raised
        assert found.end is not None
        return found.end

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """While in here, children work beside the turn, also those of before a restart."""
        leave = self._record.hub.heed(self._heed)
        try:
            async with anyio.create_task_group() as group:
                self._beside = group
                self._adopt()
                try:
                    yield
                finally:
                    self._beside = None
                    self._stop_beside("the turn that it worked for has ended")
                    group.cancel_scope.cancel()
        finally:
            leave()

    def _heed(self, entry: Entry) -> None:
        """A stop of one child; or of all, for nobody waits for those that work beside."""
        match entry.event:
            case ChildStopped(name, reason) if name in self._lives:
                self._lives[name].stop(reason)
            case Stopped(reason):
                self._stop_beside(reason)
            case _:
                pass

    def _stop_beside(self, reason: str) -> None:
        for life in self._lives.values():
            if life.beside:
                life.stop(reason)

    def _adopt(self) -> None:
        """Children that are not at work: nobody waits for them here, or a crash cut them off."""
        view = self._record.view
        stopped = view.turn.stopped
        for child in view.children.running:
            call = view.conversation.call(child.born.call_id)
            waited_for = call is not None and call.result is None
            if stopped is not None:
                self._begin_beside(child, stopped.reason)
            elif child.born.background:
                self._begin_beside(child)
            elif not waited_for:
                self._begin_beside(child, "nobody waits for it any more")

    def _begin_beside(self, child: Child, stopped: str = "") -> None:
        if child.name not in self._lives and self._beside is not None:
            life = self._life(child)
            if stopped:
                life.stop(stopped)
            self._beside.start_soon(self._lived, life, self._places)

    async def _lived(self, life: Life, places: anyio.Semaphore | None = None) -> None:
        """What it changes can be taken back where its parent can take back its own."""
        writes = life.child.born.branch == "" and self._writes(life.child)
        try:
            if writes:
                await save(self._now, self._record)
            await life.lived(places)
        finally:
            self._lives.pop(life.child.name, None)
            if writes:
                changed(self._now)

    def _writes(self, child: Child) -> bool:
        try:
            return bool(self._find(child.born.agent).effects & _WRITING)
        except BadInput:
            return False

    def _life(self, child: Child, more: Luggage = _NOTHING) -> Life:
        now = self._record.view.children.child(child.name) or child
        opening = partial(self._opening, now, more)
        life = Life(now, opening, self._ways, self._record, self._keep)
        self._lives[child.name] = life
        if now.stopped:  # before a restart, or before it began
            life.stop(now.stopped)
        return life

    def _opening(self, child: Child, more: Luggage) -> Opening:
        world, born, here = self._now, child.born, self.position
        agent = self._find(born.agent)
        never = _NEVER if agent.mode == "plan" else (*_NEVER, "exit_plan_mode")
        role: Role = born.level or agent.role  # pyright: ignore[reportAssignmentType] - a role, by `Errand`
        tree = of_a_tree(born)
        directory = self._ways.trees.inside(tree) if tree else ""
        return Opening(
            id=f"{self._id}/{born.child}",
            agent=replace(agent, role=role, without=(*agent.without, *never)),
            above=InheritedRights(self._record, world),
            purse=ChildGrant(self._record, lambda: self._now, born.child, self._drawers),
            shared=world.lineage.shared,
            reading=world.read_rules,
            tools=frozenset(world.names),
            address=f"{world.lineage.address}/{born.child}",
            position=replace(here, depth=here.depth + 1, coded=here.coded + bool(born.key)),
            directory=directory,
            roots=(tree.directory,) if tree and tree.directory != directory else (),
            attached=born.attached,
            context=more.context,
            schema=more.schema,
        )

    async def _keep(self, end: ChildEnded) -> None:
        """Told once. The words of one that worked beside stand in the same line of news."""
        words = await said_beside(end, self._record, self._now.longest_result)

        def news(view: View) -> tuple[Event, ...]:
            child = view.children.child(end.child)
            if child is None or child.end is not None:
                return ()
            hears = child.born.background and view.turn.seq and view.turn.stopped is None
            key = f"{end.child} ended"
            if not hears or key in view.account.client_keys:
                return (end,)
            # Its end stands last: cut off between the two, it is told again, and once.
            return (Said(words, end.child, client_key=key), end)

        await self._record.append_if(news, kept=True, by=end.child)

    @property
    def _now(self) -> World:
        assert self._world is not None  # a turn is under way
        return self._world
