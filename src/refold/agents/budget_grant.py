"""What a child may spend: its part of its parent's budget, and more of it as it goes on.

Who opens a child takes the first part from `portion`, in the same look at the parent's
view in which `ChildBorn` is made of it (None: nothing is left, and no child is born), and
gives the child's world a `Purse`. What is lent counts as used in the parent (`journal.state.turn`)
until `ChildEnded` tells what was really spent. When a child asks for more is the business
of `engine.policies.budget` and `engine.budget`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from refold.engine.budget import lacking, left, request_more, used_up
from refold.engine.world import Record, World
from refold.journal.events.child_events import ChildGranted
from refold.journal.state.fold import BudgetUsed, View, budget_of, used
from refold.values.usage import Budget, Estimate

NOTHING = Budget(0.0, 0, 0)
_PARTS = 16  # a child is lent one of so many of what is left


def new_grant(
    view: View,
    budget: Budget,
    need: Estimate,
    *,
    has: Budget = NOTHING,
    used_there: BudgetUsed | None = None,
    lent: bool = False,
) -> Budget | None:
    """All that a child may use up, so that `need` fits in beside what it used; or None.

    `view` and `budget` are its parent's. `has` is what the child was lent before. Where
    the parent's own budget is `lent`, this has to fit into what is left of that.
    """
    there = used_there or BudgetUsed()
    wanted = _wanted(there, need)
    if used_up(view, budget) or _overdrawn(view, budget, need, has, wanted, lent=lent):
        return None
    now = used(view)
    seconds = has.seconds
    if seconds is None and budget.seconds is not None:
        seconds = there.seconds + max(0.0, budget.seconds - now.seconds)
    if seconds is not None and there.seconds >= seconds:
        return None
    return Budget(
        dollars=_dollars(budget.dollars, now.dollars, has.dollars, wanted.dollars or 0.0),
        tokens=_many(budget.tokens, now.tokens, has.tokens, wanted.tokens or 0),
        calls=_many(budget.calls, now.calls, has.calls, wanted.calls or 0),
        seconds=seconds,
    )


def comes_back(view: View, budget: Budget) -> bool:
    """Would something be left if the children gave back what they were lent?"""
    alone = replace(view, turn=replace(view.turn, granted=()))
    return bool(view.turn.granted) and not used_up(alone, budget)


class Drawers:
    """The children of one session that wait until a sibling gives back what it was lent.

    Never all of them: the last that is at work does without, and so ends.
    """

    def __init__(self) -> None:
        self._waiting = set[str]()
        self._working = set[str]()

    def works(self, child: str) -> None:
        """Its session is open from now on; until its end it may come to give back."""
        self._working.add(child)

    async def worth_another(self, child: str, seen: View, record: Record) -> bool:
        """Wait until what is lent is not as it was `seen`. False: nobody is at work."""
        holding = {name for name, _ in record.view.turn.granted}
        if not (holding & self._working) - self._waiting - {child}:
            return False
        self._waiting.add(child)
        try:
            while record.view.turn.granted == seen.turn.granted:
                await record.news(after=record.view.seq)
        finally:
            self._waiting.discard(child)
        return True


class ChildGrant:
    """Implements the engine's `Purse` for one child. `record` and `world` are its parent's."""

    def __init__(
        self,
        record: Record,
        world: Callable[[], World],
        child: str,
        drawers: Drawers,
    ) -> None:
        self._record, self._world, self._child = record, world, child
        self._drawers = drawers
        drawers.works(child)

    @property
    def left(self) -> float:
        view, world = self._record.view, self._world()
        share = left(view, budget_of(view, world.budget))
        return (
            share if world.lineage.grant is None else min(share, world.lineage.grant.left)
        )

    async def request_more(self, need: Estimate, used: BudgetUsed) -> Budget | None:
        while True:
            view = self._record.view
            given = await self._drawn(need, used)
            if given is not None:
                return given
            now = self._record.view
            if not comes_back(now, budget_of(now, self._world().budget)):
                return None
            if not await self._drawers.worth_another(self._child, view, self._record):
                return None

    async def _drawn(self, need: Estimate, used: BudgetUsed) -> Budget | None:
        seen: Budget | None = None
        while True:
            world = self._world()
            asked = _Asked(self._child, need, used, world)
            await self._record.append_if(asked.news, by="purse")
            own = budget_of(self._record.view, world.budget)
            if (
                asked.given
                or asked.short is None
                or world.lineage.grant is None
                or own == seen
            ):
                return asked.given
            seen = own
            # The parent was lent its budget, too: that has to grow first.
            if not await request_more(
                asked.short, world.budget, world.lineage.grant, self._record
            ):
                return None


class _Asked:
    """One look at the parent's view: what is `given`, or what the parent is `short` of."""

    def __init__(self, child: str, need: Estimate, used: BudgetUsed, world: World) -> None:
        self._child, self._need, self._used, self._world = child, need, used, world
        self.given: Budget | None = None
        self.short: Estimate | None = None

    def news(self, view: View) -> tuple[ChildGranted, ...]:
        child = view.children.child(self._child)
        if child is None or not child.runs:
            return ()
        has = child.granted
        if not lacking(self._used, has, self._need):
            self.given = has  # another draw has come before this one
            return ()
        self.given = new_grant(
            view,
            budget_of(view, self._world.budget),
            self._need,
            has=has,
            used_there=self._used,
            lent=self._world.lineage.grant is not None,
        )
        if self.given is None:
            self.short = _beyond(has, self._used, self._need)
            return ()
        return (ChildGranted(self._child, self.given),)


def _wanted(there: BudgetUsed, need: Estimate) -> Budget:
    """What the child has to be able to come to with its next call."""
    dollars = there.dollars + (need.dollars or 0.0)
    return Budget(dollars, there.tokens + need.tokens, there.calls + 1)


def _beyond(has: Budget, there: BudgetUsed, need: Estimate) -> Estimate:
    """What the child wants that it was not lent yet."""
    wanted = _wanted(there, need)
    dollars = max(0.0, (wanted.dollars or 0.0) - (has.dollars or 0.0))
    tokens = max(0, (wanted.tokens or 0) - (has.tokens or 0))
    return Estimate(None if need.dollars is None else dollars, tokens)


def _overdrawn(
    view: View, budget: Budget, need: Estimate, has: Budget, wanted: Budget, *, lent: bool
) -> bool:
    """Does the parent lack what the child wants beyond what it has?

    The root may go over its budget by one call; whoever was lent theirs may not. A call
    of unknown price is counted in tokens.
    """
    now = used(view)
    unpriced = need.dollars is None
    if unpriced and budget.tokens is not None and now.tokens >= budget.tokens:
        return True
    if not lent:
        return False
    more = Estimate(
        None if unpriced else (wanted.dollars or 0.0) - (has.dollars or 0.0),
        (wanted.tokens or 0) - (has.tokens or 0),
    )
    return bool(lacking(now, budget, more))


def _dollars(
    limit: float | None, gone: float, has: float | None, wanted: float
) -> float | None:
    if limit is None:
        return None
    have = has or 0.0
    return max(have + max(0.0, limit - gone) / _PARTS, wanted)


def _many(limit: int | None, gone: int, has: int | None, wanted: int) -> int | None:
    if limit is None:
        return None
    have = has or 0
    return max(have + max(0, limit - gone) // _PARTS, wanted)
