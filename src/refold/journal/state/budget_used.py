"""What a turn has used up and set aside of its budget, and which budget that is. Pure.

Read from the view: whether there is still some left, and what then, is the engine's
question; how it is shown is the views'.
"""

from msgspec import Struct

from refold.journal.state.fold import View
from refold.values.usage import Budget


class BudgetUsed(Struct, frozen=True):
    """All of it, with what is only set aside: `waiting_…`. `tokens` are those no cache had."""

    dollars: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    priced: bool = True  # are all prices known?
    reserved_dollars: float = 0.0
    reserved_tokens: int = 0


def used(view: View) -> BudgetUsed:
    turn = view.turn
    spent, held = turn.spent, [estimate for _, estimate in turn.reserved]
    lent = [budget for _, budget in turn.granted]
    dollars = sum(each.dollars or 0.0 for each in (*held, *lent))
    tokens = sum(each.tokens or 0 for each in (*held, *lent))
    return BudgetUsed(
        dollars=spent.dollars + dollars,
        tokens=spent.usage.uncached + tokens,
        calls=spent.answers + len(held) + sum(each.calls or 0 for each in lent),
        seconds=max(0.0, turn.now - turn.started_at),
        priced=not spent.unpriced and all(each.dollars is not None for each in held),
        reserved_dollars=dollars,
        reserved_tokens=tokens,
    )


def budget_of(view: View, settled: Budget) -> Budget:
    """A person's own choice in this session, or that of the settings."""
    return settled if view.rights.budget is None else view.rights.budget
