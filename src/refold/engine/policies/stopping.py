"""Ends a turn that the user stops: settles open calls, and tells the model next turn."""

from refold.engine.decide import EndTurn, Note, SettleCalls
from refold.journal.state.fold import View

CUT_SHORT = (
    "<reminder>The person stopped your last turn before it was done. "
    "Do not continue it unless they ask.</reminder>"
)


def stopping(view: View) -> SettleCalls | EndTurn | None:
    stop = view.turn.stopped
    if stop is None:
        return None
    left = tuple(c.call.id for c in view.conversation.calls if c.result is None)
    return SettleCalls(left, stop.reason) if left else EndTurn(stop.outcome, stop.reason)


def after_a_stop(view: View) -> Note | None:
    """Tell the model, once, that its last turn was not finished."""
    turn = view.turn
    stopped = turn.outcome in ("interrupted", "cancelled")
    return Note(CUT_SHORT) if stopped and not turn.steps and turn.why == "message" else None
