"""The budget of a child: a grant from its parent's budget, which grows on request.

`new_grant` computes the first grant from the view that `ChildBorn` is appended to; None means
that nothing is left and no child is started. An open grant counts as used in the parent
(`journal.state.turn`) until `ChildEnded` says what was spent. `engine.policies.budget` and
`engine.budget` decide when a child requests more; `ChildGrant` answers.
"""

from collections.abc import Callable

from msgspec.structs import replace

from refold.engine.budget import find_overrun, request_more, share_left, shortfall
from refold.engine.world import Record, World
from refold.journal.events.child_events import ChildGranted
from refold.journal.state.fold import BudgetUsed, View, budget_of, budget_used
from refold.values.usage import Budget, Estimate

NO_GRANT = Budget(0.0, 0, 0)
_GRANT_PARTS = 16  # a grant is a sixteenth of what is left


def new_grant(
    view: View,
    budget: Budget,
    need: Estimate,
    *,
    granted_budget: Budget = NO_GRANT,
    used_there: BudgetUsed | None = None,
    lent: bool = False,
) -> Budget | None:
    """The grant of a child into which `need` fits, in addition to its usage; or None.

    `view` and `budget` are those of the parent. `granted_budget` is the grant so far. If the parent's budget
    is a grant itself (`lent`), the new grant must fit into what is left of it.
    """
    child_usage = used_there or BudgetUsed()
    wanted = _child_need(child_usage, need)
    if find_overrun(view, budget) or _exceeds_parent(
        view, budget, need, granted_budget, wanted, lent=lent
    ):
        return None
    usage = budget_used(view)
    seconds = granted_budget.seconds
    if seconds is None and budget.seconds is not None:
        seconds = child_usage.seconds + max(0.0, budget.seconds - usage.seconds)
    if seconds is not None and child_usage.seconds >= seconds:
        return None
    return Budget(
        dollars=_dollars(
            budget.dollars, usage.dollars, granted_budget.dollars, wanted.dollars or 0.0
        ),
        tokens=_share_to_grant(
            budget.tokens, usage.tokens, granted_budget.tokens, wanted.tokens or 0
        ),
        calls=_share_to_grant(
            budget.calls, usage.calls, granted_budget.calls, wanted.calls or 0
        ),
        seconds=seconds,
    )


def may_come_back(view: View, budget: Budget) -> bool:
    """Whether something would be left if the running children returned their grants."""
    alone = replace(view, turn=replace(view.turn, granted=()))
    return bool(view.turn.granted) and not find_overrun(alone, budget)


class GrantQueue:
    """The children of one session that wait for a sibling to return its grant.

    Never all of them wait: the last running child gets no grant, and so ends.
    """

    def __init__(self) -> None:
        self._waiting = set[str]()
        self._working = set[str]()

    def add_working(self, child: str) -> None:
        """Note that the session of this child is open: the child may return a grant when it
        ends.
        """
        self._working.add(child)

    async def wait_for_return(self, child: str, last_view: View, record: Record) -> bool:
        """Wait until the grants differ from `last_view`'s. False if no sibling runs."""
        holding = {name for name, _ in record.view.turn.granted}
        if not (holding & self._working) - self._waiting - {child}:
            return False
        self._waiting.add(child)
        try:
            while record.view.turn.granted == last_view.turn.granted:
                await record.wait_for_event(after=record.view.seq)
        finally:
            self._waiting.discard(child)
        return True


class ChildGrant:
    """Implements the engine's `BudgetGrant` for one child. `record`, `world`: the parent's."""

    def __init__(
        self,
        record: Record,
        world: Callable[[], World],
        child: str,
        queue: GrantQueue,
    ) -> None:
        self._record, self._world, self._child = record, world, child
        self._queue = queue
        queue.add_working(child)

    @property
    def share_left(self) -> float:
        view, world = self._record.view, self._world()
        share = share_left(view, budget_of(view, world.budget))
        return (
            share
            if world.lineage.grant is None
            else min(share, world.lineage.grant.share_left)
        )

    async def request_more(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        while True:
            view = self._record.view
            grant = await self._draw(need, usage)
            if grant is not None:
                return grant
            current = self._record.view
            if not may_come_back(current, budget_of(current, self._world().budget)):
                return None
            if not await self._queue.wait_for_return(self._child, view, self._record):
                return None

    async def _draw(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        last_budget: Budget | None = None
        while True:
            world = self._world()
            asked = _GrantRequest(self._child, need, usage, world)
            await self._record.append_if(asked.make_events, author="budget")
            own = budget_of(self._record.view, world.budget)
            if (
                asked.given
                or asked.short is None
                or world.lineage.grant is None
                or own == last_budget
            ):
                return asked.given
            last_budget = own
            # The parent's budget is a grant, too, and has to grow first.
            if not await request_more(
                asked.short, world.budget, world.lineage.grant, self._record
            ):
                return None


class _GrantRequest:
    """One request against the parent's view: the grant `given`, or what the parent is `short` of."""

    def __init__(self, child: str, need: Estimate, usage: BudgetUsed, world: World) -> None:
        self._child, self._need, self._used, self._world = child, need, usage, world
        self.given: Budget | None = None
        self.short: Estimate | None = None

    def make_events(self, view: View) -> tuple[ChildGranted, ...]:
        child = view.children.child(self._child)
        if child is None or not child.runs:
            return ()
        granted_budget = child.granted
        if not shortfall(self._used, granted_budget, self._need):
            self.given = granted_budget  # another request has raised it already
            return ()
        self.given = new_grant(
            view,
            budget_of(view, self._world.budget),
            self._need,
            granted_budget=granted_budget,
            used_there=self._used,
            lent=self._world.lineage.grant is not None,
        )
        if self.given is None:
            self.short = _missing_budget(granted_budget, self._used, self._need)
            return ()
        return (ChildGranted(self._child, self.given),)


def _child_need(child_usage: BudgetUsed, need: Estimate) -> Budget:
    """The child's usage including its next call."""
    dollars = child_usage.dollars + (need.dollars or 0.0)
    return Budget(dollars, child_usage.tokens + need.tokens, child_usage.calls + 1)


def _missing_budget(
    granted_budget: Budget, child_usage: BudgetUsed, need: Estimate
) -> Estimate:
    """What the child needs beyond its grant."""
    wanted = _child_need(child_usage, need)
    dollars = max(0.0, (wanted.dollars or 0.0) - (granted_budget.dollars or 0.0))
    tokens = max(0, (wanted.tokens or 0) - (granted_budget.tokens or 0))
    return Estimate(None if need.dollars is None else dollars, tokens)


def _exceeds_parent(
    view: View,
    budget: Budget,
    need: Estimate,
    granted_budget: Budget,
    request: Budget,
    *,
    lent: bool,
) -> bool:
    """Whether the parent lacks what the child needs beyond its grant.

    The root may exceed its budget by one call; a session with a grant may not. A call of unknown
    price is counted in tokens.
    """
    usage = budget_used(view)
    unpriced = need.dollars is None
    if unpriced and budget.tokens is not None and usage.tokens >= budget.tokens:
        return True
    if not lent:
        return False
    extra = Estimate(
        None if unpriced else (request.dollars or 0.0) - (granted_budget.dollars or 0.0),
        (request.tokens or 0) - (granted_budget.tokens or 0),
    )
    return bool(shortfall(usage, budget, extra))


def _dollars(
    limit: float | None,
    spent_dollars: float,
    granted: float | None,
    requested_dollars: float,
) -> float | None:
    if limit is None:
        return None
    have = granted or 0.0
    return max(have + max(0.0, limit - spent_dollars) / _GRANT_PARTS, requested_dollars)


def _share_to_grant(
    limit: int | None, spent: int, granted: int | None, request: int
) -> int | None:
    if limit is None:
        return None
    have = granted or 0
    return max(have + max(0, limit - spent) // _GRANT_PARTS, request)
