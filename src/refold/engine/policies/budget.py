"""A turn ends when its budget is used up, and the model is told while there is still some."""

from refold.engine.decide import EndTurn, Note, Policy
from refold.engine.spending import left, used_up
from refold.journal.fold import View
from refold.journal.used import budget_of, used
from refold.values.budget import Budget

_TOLD_AT = (0.5, 0.25, 0.1)  # of it are left
LEFT = (
    "<reminder>About {left:.0%} of what this turn may use up is left{much}. Do what matters "
    "most first, and leave the rest in a state that is easy to go on from.</reminder>"
)


def within(settled: Budget) -> Policy:
    """`settled` holds for sessions without a budget of their own.

    Stands after `converse`: a turn that ends by itself has not run out of anything.
    """

    def budget(view: View) -> EndTurn | None:
        turn = view.turn
        if view.talk.calls or turn.asking is not None:
            return None
        if view.talk.unheard and not turn.steps:
            return None  # a turn that ended before it heard its words would begin again
        if over := used_up(view, budget_of(view, settled)):
            return EndTurn("budget", f"{over}; continue goes on with as much again")
        return None

    return budget


def telling(settled: Budget) -> tuple[Policy, ...]:
    """One for each mark: it speaks once, and only while no lower mark is reached."""
    return tuple(
        _below(mark, floor, settled)
        for mark, floor in zip(_TOLD_AT, (*_TOLD_AT[1:], 0.0), strict=True)
    )


def _below(mark: float, floor: float, settled: Budget) -> Policy:
    name = f"budget_{mark:.0%}"

    def policy(view: View) -> Note | None:
        own, turn = budget_of(view, settled), view.turn
        share = left(view, own) if turn.steps and name not in turn.noted else 1.0
        if not floor < share <= mark:
            return None
        return Note(LEFT.format(left=share, much=_much(view, own)))

    policy.__name__ = name
    return policy


def _much(view: View, own: Budget) -> str:
    if own.dollars is None:
        return ""
    return f" (${max(0.0, own.dollars - used(view).dollars):.2f} of ${own.dollars:.2f})"
