"""Ends a turn when its budget is used up, and warns the model before that.

A subagent's budget is a grant: before it is used up, more is requested, as long as there is
any.
"""

from collections.abc import Sequence

from refold.engine.budget import (
    Price,
    Remainder,
    estimate_next_step,
    find_overrun,
    remainder,
    shortfall,
    why_unenforceable,
)
from refold.engine.decide import EndTurn, Note, Policy, RequestBudget
from refold.journal.state.fold import View, budget_of, budget_used
from refold.values.usage import Budget, Usage

_WARNING_SHARES = (0.5, 0.25, 0.1)  # of it are left
BUDGET_LEFT = (
    "<reminder>About {left:.0%} of what this turn may use up is left{much}. Do what matters "
    "most first, and leave the rest in a state that is easy to continue from.</reminder>"
)


def end_over_budget(settled: Budget, price: Price | None = None) -> Policy:
    """End a turn whose budget is used up. `settled` is the default budget of a session.

    `price` gives prices, for a child: its turn ends only once no more is granted.
    """

    def budget(view: View) -> EndTurn | None:
        turn, own = view.turn, budget_of(view, settled)
        repeats = turn.open_request is not None and not turn.dropped_in_a_row
        if view.conversation.calls or repeats:
            return None
        if view.conversation.undelivered and not turn.steps:
            return (
                None  # ending the turn here would start another one for the queued message
            )
        if price is not None:
            need = estimate_next_step(view, price)
            over = (
                shortfall(budget_used(view), own, need) if view.rights.final_budget else ""
            )
            return EndTurn("budget", over) if over else None
        if over := find_overrun(view, own):
            return EndTurn("budget", f"{over}; continue the session to spend as much again")
        return None

    return budget


def enforceable(settled: Budget, price: Price, fallbacks: Sequence[str] = ()) -> Policy:
    """Ends a turn before a model is called whose price is not known, if only dollars are limited.

    `fallbacks` are the models that may answer instead.
    """

    def enforceable_budget(view: View) -> EndTurn | None:
        if view.conversation.calls or view.turn.open_request is not None:
            return None
        if view.conversation.undelivered and not view.turn.steps:
            return (
                None  # ending the turn here would start another one for the queued message
            )
        own = budget_of(view, settled)
        models = (view.conversation.system_prompt.model, *fallbacks)
        reasons = (
            why_unenforceable(model, price(model, Usage(1)), own)
            for model in models
            if model
        )
        reason = next(filter(None, reasons), "")
        return EndTurn("budget", reason) if reason else None

    return enforceable_budget


def draw_on_grant(settled: Budget, price: Price) -> Policy:
    """For a child: request a larger grant if the next call does not fit into this one."""

    def budget_lent(view: View) -> RequestBudget | None:
        if view.conversation.calls or view.rights.final_budget:
            return None
        need, own = estimate_next_step(view, price), budget_of(view, settled)
        return RequestBudget() if shortfall(budget_used(view), own, need) else None

    return budget_lent


def warn_of_budget(settled: Budget, *, lent: bool = False) -> tuple[Policy, ...]:
    """Warn at each mark of the remaining budget, once, until a lower mark is reached.

    For a subagent the marks refer to the budget behind its grant, because the grant itself
    grows.
    """
    return tuple(
        _warn_below(mark, floor, settled, lent=lent)
        for mark, floor in zip(_WARNING_SHARES, (*_WARNING_SHARES[1:], 0.0), strict=True)
    )


def _warn_below(mark: float, floor: float, settled: Budget, *, lent: bool) -> Policy:
    name = f"budget_{mark:.0%}"

    def policy(view: View) -> Note | None:
        turn = view.turn
        if not turn.steps or name in turn.noted_by:
            return None
        left = remainder(view, budget_of(view, settled))
        if lent:
            left = Remainder(view.rights.share_left)
        if not floor < left.share <= mark:
            return None
        much = f" ({left.words})" if left.words else ""
        return Note(BUDGET_LEFT.format(left=left.share, much=much))

    policy.__name__ = name
    return policy
