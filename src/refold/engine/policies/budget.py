"""A turn ends when its budget is used up, and the model is told while there is still some."""

from refold.engine.decide import EndTurn, Note, Policy
from refold.engine.spending import Price, budget_of, left, used, used_up
from refold.journal.fold import View
from refold.values.budget import Budget
from refold.values.usage import Usage

_TOLD_AT = (0.5, 0.25, 0.1)
LEFT = (
    "<reminder>About {left:.0%} of what this turn may use up is left{much}. Do what matters "
    "most first, and leave the rest in a state that is easy to go on from.</reminder>"
)


def within(settled: Budget, price: Price) -> Policy:
    """`settled` holds for sessions without a budget of their own.

    Stands after `converse`: a turn that ends by itself has not run out of anything.
    """

    def budget(view: View) -> EndTurn | Note | None:
        turn, own = view.turn, budget_of(view, settled)
        if view.talk.calls or turn.asking is not None:
            return None
        priced = price(view.talk.briefed.model, Usage(fresh=1, output=1)) is not None
        if over := used_up(view, own, priced=priced):
            return EndTurn("budget", f"{over}; continue goes on with as much again")
        told = turn.noted.count("budget")
        share = left(view, own)
        if told < len(_TOLD_AT) and turn.steps and share <= _TOLD_AT[told]:
            return Note(LEFT.format(left=share, much=_much(view, own)))
        return None

    return budget


def _much(view: View, own: Budget) -> str:
    if own.dollars is None:
        return ""
    return f" (${max(0.0, own.dollars - used(view).dollars):.2f} of ${own.dollars:.2f})"
