"""What a turn may use up, what it has used, and what is left. Pure.

Setting it and holding to it are other rooms' business: the inbox's, the engine's.
"""

from collections.abc import Iterator

from refold.journal.fold import View
from refold.values.budget import NO_LIMIT, Budget
from refold.views.counts import dollars, duration, tokens
from refold.views.styled import Line, line


def in_force(view: View, settled: Budget) -> Budget:
    """What a person chose in this session, or what the settings say."""
    return settled if view.rights.budget is None else view.rights.budget


def budget_lines(view: View, settled: Budget) -> list[Line]:
    """`settled` is what the settings say."""
    budget = in_force(view, settled)
    if budget == NO_LIMIT:
        return [
            line("No budget: a turn may use up whatever it needs. /budget USD sets one.")
        ]
    whose = "as it is set" if view.rights.budget is None else "chosen for this session"
    head = line(f"One turn may use up, {whose}:")
    ended = "the last turn" if view.turn.outcome else ""
    turn = "this turn" if view.turn.seq else ended
    return [head, *_rows(view, budget, turn)]


def budget_document(budget: Budget) -> dict[str, object]:
    """None: no limit."""
    return {
        "dollars": budget.dollars, "tokens": budget.tokens, "calls": budget.calls,
        "seconds": budget.seconds,
    }  # fmt: skip


def _rows(view: View, budget: Budget, turn: str) -> Iterator[Line]:
    spent, held = view.turn.spent, [each for _, each in view.turn.held]
    usage = spent.usage
    if budget.dollars is not None:
        waits = sum(each.dollars or 0.0 for each in held)
        left = max(0.0, budget.dollars - spent.dollars - waits)
        used = f"{dollars(spent.dollars)} used{_held(dollars(waits), waits)}"
        more = ", and more whose price is not known" if spent.unpriced else ""
        yield _row(dollars(budget.dollars), f"{used}{more}, {dollars(left)} left", turn)
    if budget.tokens is not None:
        count = usage.fresh + usage.cache_write + usage.output
        waits = sum(each.tokens for each in held)
        left = max(0, budget.tokens - count - waits)
        used = f"{tokens(count)} used{_held(tokens(waits), waits)}, {tokens(left)} left"
        what = "tokens that no cache had, where a price is not known"
        yield _row(f"{tokens(budget.tokens)} {what}", used, turn)
    if budget.calls is not None:
        left = max(0, budget.calls - spent.answers - len(held))
        yield _row(
            f"{budget.calls} model calls", f"{spent.answers} made, {left} left", turn
        )
    if budget.seconds is not None:
        took = f"{duration(view.turn.now - view.turn.began)} so far"
        yield _row(duration(budget.seconds), took, turn if view.turn.seq else "")


def _held(said: str, amount: float) -> str:
    return f", {said} set aside" if amount else ""


def _row(limit: str, used: str, turn: str) -> Line:
    about = f"  ({turn}: {used})" if turn else ""
    return (("strong", f"  {limit}"), ("dim", about))
