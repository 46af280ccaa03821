"""Grants: a child's budget is a part of its parent's budget, and grows on request.

`new_grant` computes the first grant from the view to which `ChildBorn` is appended. If it
returns None, too little is left and no child is started. An open grant counts as used in the
parent (`journal.state.turn`) until `ChildEnded` records what was spent.
`engine.policies.budget` and `engine.budget` decide when a child requests more; `ChildGrant`
answers the request.
"""

from collections.abc import Callable

from msgspec.structs import replace

from refold.engine.budget import find_overrun, request_more, share_left, shortfall
from refold.engine.world import Record, World
from refold.journal.events.child_events import ChildGranted
from refold.journal.state.fold import BudgetUsed, View, budget_of, budget_used
from refold.values.usage import Budget, Estimate

NO_GRANT = Budget(dollars=0.0, tokens=0, calls=0)
_GRANT_PARTS = 16  # what is left is divided by this; one part is a grant


def new_grant(
    view: View,
    budget: Budget,
    need: Estimate,
    *,
    granted_budget: Budget = NO_GRANT,
    used_there: BudgetUsed | None = None,
    parent_has_grant: bool = False,
) -> Budget | None:
    """Return the total grant for a child; None if its parent has too little left.

    A grant is the part of its parent's budget that a child may use. The returned grant covers
    what the child has used (`used_there`), its next call and usually more. `need` is the
    estimate for that call, and `granted_budget` the grant so far. `view` and `budget` belong to
    the parent. If the parent's budget is a grant itself (`parent_has_grant`), the new grant
    must fit into what is left of it.
    """
    child_usage = used_there or BudgetUsed()
    wanted = _child_need(child_usage, need)
    if find_overrun(view, budget):
        return None
    if _exceeds_parent(
        view, budget, need, granted_budget, wanted, parent_has_grant=parent_has_grant
    ):
        return None
    usage = budget_used(view)
    seconds = granted_budget.seconds
    if seconds is None and budget.seconds is not None:  # the first grant: all that is left
        seconds = child_usage.seconds + max(0.0, budget.seconds - usage.seconds)
    if seconds is not None and child_usage.seconds >= seconds:
        return None
    return Budget(
        dollars=_dollars_to_grant(
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
    """Whether budget would be left if the running children returned their grants."""
    without_grants = replace(view, turn=replace(view.turn, granted=()))
    return bool(view.turn.granted) and not find_overrun(without_grants, budget)


class GrantQueue:
    """The children of one session that wait for a sibling to return its grant.

    At least one child with a grant never waits: its request is refused instead, so that this
    child ends.
    """

    def __init__(self) -> None:
        self._waiting = set[str]()
        self._working = set[str]()

    def add_working(self, child: str) -> None:
        """Add a child whose session is open: it may return a part of its grant when it ends."""
        self._working.add(child)

    async def wait_for_return(self, child: str, last_view: View, record: Record) -> bool:
        """Wait until the grants differ from those in `last_view`, and return True.

        Return False at once if every other child with a grant waits as well.
        """
        with_grant = {name for name, _ in record.view.turn.granted}
        may_return_some = (with_grant & self._working) - self._waiting - {child}
        if not may_return_some:
            return False
        self._waiting.add(child)
        try:
            while record.view.turn.granted == last_view.turn.granted:
                await record.wait_for_event(after=record.view.seq)
        finally:
            self._waiting.discard(child)
        return True


class ChildGrant:
    """Implements the engine's `BudgetGrant` for one child.

    `record` and `world` are those of the parent.
    """

    def __init__(
        self,
        record: Record,
        world: Callable[[], World],
        child: str,
        queue: GrantQueue,
    ) -> None:
        self._record = record
        self._world = world
        self._child = child
        self._queue = queue
        queue.add_working(child)

    @property
    def share_left(self) -> float:
        """Return the smallest share that is left to the parent and to all sessions above it."""
        view, world = self._record.view, self._world()
        share = share_left(view, budget_of(view, world.budget))
        if world.lineage.grant is None:
            return share
        return min(share, world.lineage.grant.share_left)

    async def request_more(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        """Return a larger grant, if necessary after waiting for siblings to return their
        grants.

        Return None if no larger grant can be given.
        """
        while True:
            view_before = self._record.view
            grant = await self._request_now(need, usage)
            if grant is not None:
                return grant
            current = self._record.view
            if not may_come_back(current, budget_of(current, self._world().budget)):
                return None
            was_returned = await self._queue.wait_for_return(
                self._child, view_before, self._record
            )
            if not was_returned:
                return None

    async def _request_now(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        """Return a new total grant without waiting for siblings; None if the parent has too
        little.

        If the parent's budget is a grant, too, a larger grant is requested for the parent
        first.
        """
        last_budget: Budget | None = None
        while True:
            world = self._world()
            request = _GrantRequest(self._child, need, usage, world)
            await self._record.append_if(request.make_events, author="budget")
            if request.given is not None:
                return request.given
            parent_grant = world.lineage.grant
            if request.short is None or parent_grant is None:
                return None  # the child has ended, or the parent cannot request more
            budget = budget_of(self._record.view, world.budget)
            if budget == last_budget:
                return None  # the last request for the parent has changed nothing
            last_budget = budget
            if not await request_more(
                request.short, world.budget, parent_grant, self._record
            ):
                return None


class _GrantRequest:
    """One request for a grant from the parent's budget.

    After `make_events`, the result is the grant `given`, or the amount `short` that the
    parent lacks. Both are None if the child has ended.
    """

    def __init__(self, child: str, need: Estimate, usage: BudgetUsed, world: World) -> None:
        self._child = child
        self._need = need
        self._used = usage
        self._world = world
        self.given: Budget | None = None  # the new total grant
        self.short: Estimate | None = None  # what the parent lacks for it

    def make_events(self, view: View) -> tuple[ChildGranted, ...]:
        """Return the event of a larger grant, and set `given` to the grant.

        Return () if no larger grant is needed. If the parent has too little left, return () and
        set `short`.
        """
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
            parent_has_grant=self._world.lineage.grant is not None,
        )
        if self.given is None:
            self.short = _missing_budget(granted_budget, self._used, self._need)
            return ()
        return (ChildGranted(self._child, self.given),)


def _child_need(child_usage: BudgetUsed, need: Estimate) -> Budget:
    """Return the budget that covers what the child has used and its next call."""
    dollars = child_usage.dollars + (need.dollars or 0.0)
    return Budget(dollars, child_usage.tokens + need.tokens, child_usage.calls + 1)


def _missing_budget(
    granted_budget: Budget, child_usage: BudgetUsed, need: Estimate
) -> Estimate:
    """Return what the child needs beyond its grant."""
    wanted = _child_need(child_usage, need)
    dollars = max(0.0, (wanted.dollars or 0.0) - (granted_budget.dollars or 0.0))
    tokens = max(0, (wanted.tokens or 0) - (granted_budget.tokens or 0))
    return Estimate(None if need.dollars is None else dollars, tokens)


def _exceeds_parent(
    view: View,
    budget: Budget,
    need: Estimate,
    granted_budget: Budget,
    wanted: Budget,
    *,
    parent_has_grant: bool,
) -> bool:
    """Whether the parent lacks what the child needs beyond its grant.

    `wanted` is the budget that the child needs, and `need` the estimate for its next call. The
    root may exceed its budget by one call; a session with a grant may not. A call of unknown
    price is counted in tokens.
    """
    usage = budget_used(view)
    has_price = need.dollars is not None
    no_tokens_left = budget.tokens is not None and usage.tokens >= budget.tokens
    if no_tokens_left and not has_price:
        return True
    if not parent_has_grant:
        return False
    extra_dollars = (wanted.dollars or 0.0) - (granted_budget.dollars or 0.0)
    extra_tokens = (wanted.tokens or 0) - (granted_budget.tokens or 0)
    extra = Estimate(extra_dollars if has_price else None, extra_tokens)
    return bool(shortfall(usage, budget, extra))


def _dollars_to_grant(
    limit: float | None,
    spent_dollars: float,
    granted: float | None,
    wanted: float,
) -> float | None:
    """Return the new grant in dollars, by the rules of `_share_to_grant`."""
    if limit is None:
        return None
    share = max(0.0, limit - spent_dollars) / _GRANT_PARTS
    return max((granted or 0.0) + share, wanted)


def _share_to_grant(
    limit: int | None, spent: int, granted: int | None, wanted: int
) -> int | None:
    """Return the new grant: the old grant plus a share of the parent's remaining budget.

    The new grant is at least `wanted`. Return None if the parent has no limit.
    """
    if limit is None:
        return None
    share = max(0, limit - spent) // _GRANT_PARTS
    return max((granted or 0) + share, wanted)
