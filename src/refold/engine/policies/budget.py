"""Ends a turn when its budget is used up, and warns the model before that.

A subagent's budget is a grant from its parent's budget. Before the grant is used up, a larger
one is requested, until that is refused.
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

_WARNING_SHARES = (0.5, 0.25, 0.1)  # shares of the budget that are left
BUDGET_LEFT = (
    "<reminder>About {left:.0%} of what this turn may use up is left{much}. Do what matters "
    "most first, and leave the rest in a state that is easy to continue from.</reminder>"
)


def end_over_budget(default: Budget, price: Price | None = None) -> Policy:
    """Return a policy that ends a turn whose budget is used up.

    `default` is the default budget of a session. `price` is passed only for a child: its turn
    ends once its grant is final and too small for the next call.
    """

    def budget(view: View) -> EndTurn | None:
        """Return the end of the turn if its budget is used up; otherwise None."""
        turn, own = view.turn, budget_of(view, default)
        # A request that was interrupted is repeated: it was within the budget when it was made.
        is_repeated = turn.open_request is not None and not turn.dropped_in_a_row
        if view.conversation.calls or is_repeated:
            return None
        if view.conversation.undelivered and not turn.steps:
            # If this turn ended now, a new turn would start for the queued message.
            return None
        if price is None:
            overrun = find_overrun(view, own)
            advice = "continue the session to spend as much again"
            return EndTurn("budget", f"{overrun}; {advice}") if overrun else None
        if not view.rights.final_budget:
            return None  # the grant may still grow
        need = estimate_next_step(view, price)
        reason = shortfall(budget_used(view), own, need)
        return EndTurn("budget", reason) if reason else None

    return budget


def enforceable(default: Budget, price: Price, fallbacks: Sequence[str] = ()) -> Policy:
    """Return a policy that ends a turn before a model without a known price is called.

    It ends the turn only if dollars are limited and tokens are not. `fallbacks` are the models
    that are used while the main model is unavailable.
    """

    def enforceable_budget(view: View) -> EndTurn | None:
        """Return the end of the turn if the budget needs a price that a model lacks; or
        None.
        """
        if view.conversation.calls or view.turn.open_request is not None:
            return None
        if view.conversation.undelivered and not view.turn.steps:
            # If this turn ended now, a new turn would start for the queued message.
            return None
        own = budget_of(view, default)
        models = (view.conversation.system_prompt.model, *fallbacks)
        reasons = (
            why_unenforceable(model, price(model, Usage(1)), own)
            for model in models
            if model
        )
        reason = next(filter(None, reasons), "")
        return EndTurn("budget", reason) if reason else None

    return enforceable_budget


def draw_on_grant(default: Budget, price: Price) -> Policy:
    """Return a policy that requests a larger grant for a child if the next call does not
    fit.
    """

    def budget_lent(view: View) -> RequestBudget | None:
        """Return a request for a larger grant if the next call needs one; otherwise None."""
        if view.conversation.calls or view.rights.final_budget:
            return None
        need, own = estimate_next_step(view, price), budget_of(view, default)
        return RequestBudget() if shortfall(budget_used(view), own, need) else None

    return budget_lent


def warn_of_budget(default: Budget, *, has_grant: bool = False) -> tuple[Policy, ...]:
    """Return a policy for each mark of the remaining budget.

    Each policy warns the model once, while the remaining share is below its mark and above the
    next lower mark. For a subagent (`has_grant`), the marks refer to the budget behind its
    grant, because the grant itself grows.
    """
    next_lower_marks = (*_WARNING_SHARES[1:], 0.0)
    return tuple(
        _warn_below(mark, floor, default, has_grant=has_grant)
        for mark, floor in zip(_WARNING_SHARES, next_lower_marks, strict=True)
    )


def _warn_below(mark: float, floor: float, default: Budget, *, has_grant: bool) -> Policy:
    """Return a policy that warns once, while the share left is in (`floor`, `mark`]."""
    name = f"budget_{mark:.0%}"

    def policy(view: View) -> Note | None:
        """Return a warning if the share left is in the range, once a turn; otherwise None."""
        turn = view.turn
        if not turn.steps or name in turn.noted_by:
            return None
        if has_grant:
            left = Remainder(view.rights.share_left)
        else:
            left = remainder(view, budget_of(view, default))
        if not floor < left.share <= mark:
            return None
        much = f" ({left.words})" if left.words else ""
        return Note(BUDGET_LEFT.format(left=left.share, much=much))

    policy.__name__ = name
    return policy
