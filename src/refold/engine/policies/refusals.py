"""End a turn in which the model asks only for what it is refused, again and again."""

from refold.engine.decide import EndTurn, Policy
from refold.journal.fold import View


def not_refused(times: int = 3) -> Policy:
    """`times` answers in a row without one call that was allowed are enough."""

    def refusals(view: View) -> EndTurn | None:
        if view.turn.refused < times:
            return None
        return EndTurn("denied", f"every call of {times} answers in a row was refused")

    return refusals
