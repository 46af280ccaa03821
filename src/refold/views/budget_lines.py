"""The budget of a turn: limits, usage and what is left. Pure.

The inbox sets it, and the engine enforces it.
"""

from collections.abc import Iterator

from refold.journal.state.fold import View, budget_of, used
from refold.values.usage import NO_LIMIT, Budget
from refold.views.number_format import dollars, duration, estimate_sign, tokens
from refold.views.styled import Line, line


def budget_lines(view: View, settled: Budget) -> list[Line]:
    """`settled` is the budget of the settings."""
    budget = budget_of(view, settled)
    if budget == NO_LIMIT:
        return [
            line("No budget: a turn may use up whatever it needs. /budget USD sets one.")
        ]
    whose = "as it is set" if view.rights.budget is None else "chosen for this session"
    head = line(f"One turn may use up, {whose}:")
    ended = "the last turn" if view.turn.outcome else ""
    turn = "this turn" if view.turn.seq else ended
    return [head, *_rows(view, budget, turn)]


def budget_text(budget: Budget) -> str:
    """Its limits in a few words."""
    limits = (
        "" if budget.dollars is None else dollars(budget.dollars),
        "" if budget.tokens is None else f"{tokens(budget.tokens)} tokens",
        "" if budget.calls is None else f"{budget.calls} model calls",
        "" if budget.seconds is None else duration(budget.seconds),
    )
    return ", ".join(each for each in limits if each) or "whatever it needs"


def budget_document(budget: Budget) -> dict[str, object]:
    """None: no limit."""
    return {
        "dollars": budget.dollars, "tokens": budget.tokens, "calls": budget.calls,
        "seconds": budget.seconds,
    }  # fmt: skip


def _rows(view: View, budget: Budget, turn: str) -> Iterator[Line]:
    spent, now = view.turn.spent, used(view)
    if budget.dollars is not None:
        left = max(0.0, budget.dollars - now.dollars)
        held = _held(dollars(now.reserved_dollars), now.reserved_dollars)
        more = ", and more whose price is not known" if spent.unpriced else ""
        said = f"{estimate_sign(spent)}{dollars(spent.dollars)} used{held}{more}, {dollars(left)} left"
        yield _row(dollars(budget.dollars), said, turn)
    if budget.tokens is not None:
        left = max(0, budget.tokens - now.tokens)
        held = _held(tokens(now.reserved_tokens), now.reserved_tokens)
        said = f"{estimate_sign(spent)}{tokens(spent.usage.uncached)} used{held}, {tokens(left)} left"
        what = "tokens that no cache had, where a price is not known"
        yield _row(f"{tokens(budget.tokens)} {what}", said, turn)
    if budget.calls is not None:
        left = max(0, budget.calls - now.calls)
        said = f"{spent.answers} made, {left} left"
        yield _row(f"{budget.calls} model calls", said, turn)
    if budget.seconds is not None:
        took = f"{duration(now.seconds)} so far"
        yield _row(duration(budget.seconds), took, turn if view.turn.seq else "")


def _held(said: str, amount: float) -> str:
    return f", {said} reserved" if amount else ""


def _row(limit: str, used: str, turn: str) -> Line:
    about = f"  ({turn}: {used})" if turn else ""
    return (("strong", f"  {limit}"), ("dim", about))
