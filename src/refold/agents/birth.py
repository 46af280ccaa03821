"""How a child comes to be: told of in the journal of its parent, once for a call.

What it is lent is taken from what its parent has, in the same look. What then becomes of
it is the business of `children`.
"""

from collections.abc import Callable
from functools import partial
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.budget_grant import comes_back, new_grant
from refold.agents.child import Position
from refold.agents.profile import Profile
from refold.agents.worktree import Worktrees
from refold.engine.budget import NOTHING_LEFT, request_more
from refold.engine.world import World
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import ChildBorn
from refold.journal.state.children import Child
from refold.journal.state.fold import View, budget_of
from refold.session.recorder import Recorder
from refold.tools.task import Errand
from refold.values.usage import Estimate

_FIRST = Estimate(0.0, 0)  # what the first call may come to is not known yet


class Wish(Struct, frozen=True):
    """Which child there is to be. `key` and `n` tell those of one call apart."""

    call_id: str
    errand: Errand
    key: str = ""
    n: int = 0
    attached: str = ""


class Births:
    """Of the children of the session `id_`."""

    def __init__(
        self,
        record: Recorder,
        id_: str,
        find: Callable[[str], Profile],
        trees: Worktrees,
        position: Position,
    ) -> None:
        self._record, self._id, self._find, self._trees = record, id_, find, trees
        self._position = position

    async def child(self, wish: Wish, world: World) -> Child:
        """The child that this wish had, or has now. Raises `ToolFailed`."""
        found = self._known(wish)
        while found is None:
            agent = self._agent(wish.errand)
            if self._full(self._record.view, world):
                raise ToolFailed(self._too_many)
            base = await self._trees.base() if wish.errand.worktree else ""
            news = partial(self._news, wish, agent.name, base, world)
            born = await self._record.append_if(news, kept=True)
            if not born and not self._full(self._record.view, world):
                await self._more(world)
            found = self._known(wish)
        return found

    def _known(self, wish: Wish) -> Child | None:
        return self._record.view.children.of_call(wish.call_id, wish.key, wish.n)

    def _news(
        self, wish: Wish, agent: str, base: str, world: World, view: View
    ) -> tuple[ChildBorn, ...]:
        errand, budget = wish.errand, budget_of(view, world.budget)
        grant = new_grant(view, budget, _FIRST, lent=world.lineage.grant is not None)
        if grant is None or view.children.of_call(wish.call_id, wish.key, wish.n):
            return ()
        if self._full(view, world):
            return ()
        world.lineage.shared.born(world.lineage.address, _born(view) + 1)
        born = ChildBorn(
            view.children.next_name,
            wish.call_id,
            agent,
            errand.task,
            key=wish.key,
            n=wish.n,
            level=errand.level,
            background=errand.beside,
            grant=grant,
            attached=wish.attached,
            title=errand.title,
        )
        if not base:
            return (born,)
        tree = self._trees.named(self._id, born.child, base)
        where = replace(born, directory=tree.directory, branch=tree.branch, base=tree.base)
        return (where,)

    def _full(self, view: View, world: World) -> bool:
        """Has the whole tree had as many children in this turn of its root as it may?"""
        lineage = world.lineage
        if not self._position.depth:
            lineage.shared.turn_of_root(view.turn.seq)
        others = lineage.shared.born_elsewhere(lineage.address)
        return _born(view) + others >= self._position.total

    @property
    def _too_many(self) -> str:
        return (
            f"No agent was started: {self._position.total} were started in this turn, by all "
            "agents together, and no more may be (the setting children.total). Do the rest "
            "yourself, or say what is left to do."
        )

    async def _more(self, world: World) -> None:
        """Return when there may be something to lend. Raises `ToolFailed` if nothing is left.

        What siblings were lent comes back for the most part: who is not born waits for it.
        """
        view = self._record.view
        if comes_back(view, budget_of(view, world.budget)):
            while self._record.view.turn.granted == view.turn.granted:
                await self._record.news(after=self._record.view.seq)
            return
        if not await request_more(_FIRST, world.budget, world.lineage.grant, self._record):
            raise ToolFailed(f"No agent was started: {NOTHING_LEFT}.")

    def _agent(self, errand: Errand) -> Profile:
        try:
            return self._find(errand.agent)
        except BadInput as error:
            raise ToolFailed(f"{error}.") from error


def _born(view: View) -> int:
    """The children of this session's turn. One of a call that is made again is no new one."""
    began = view.turn.seq
    newest = reversed(view.children.children)
    return sum(1 for _ in takewhile(lambda each: each.seq > began, newest))
