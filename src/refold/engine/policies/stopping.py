"""Heed a stop: settle what was called, then end the turn.

Settling and going on with calls have the same rank, so this one stands before
`converse` in the list.
"""

from refold.engine.decide import EndTurn, Note, SettleCalls
from refold.journal.fold import View

CUT_SHORT = (
    "<reminder>The person stopped your last turn before it was done. "
    "Do not go on with it unless they ask.</reminder>"
)


def stopping(view: View) -> SettleCalls | EndTurn | None:
    stop = view.turn.stopped
    if stop is None:
        return None
    left = tuple(c.call.id for c in view.talk.calls if c.result is None)
    return SettleCalls(left, stop.reason) if left else EndTurn(stop.outcome, stop.reason)


def after_a_stop(view: View) -> Note | None:
    """Tell the model, once, that its last turn was not finished."""
    turn = view.turn
    stopped = turn.outcome in ("interrupted", "cancelled")
    return Note(CUT_SHORT) if stopped and not turn.steps and turn.why == "words" else None
