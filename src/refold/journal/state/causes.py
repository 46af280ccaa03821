"""What led to an event, as the seq of another. Makes "why" a query.

Only what the view still knows counts: the model's answer comes from being
asked, a verdict from the answer that held the call, an end from its start.
"""

from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Delivered,
    Ended,
    Event,
    Judged,
    ModelAnswered,
    ModelFailed,
    RequestLogged,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View


def cause_of(event: Event, view: View) -> int:
    """The seq of what led to `event`; 0 where it came from outside."""
    match event:
        case TurnStarted(cause):
            return cause
        case Delivered(words):
            return words[0] if words else 0
        case ModelAnswered() | ModelFailed() | RequestLogged():
            return view.turn.request_seq
        case Judged(call_id) | Answered(call_id) | Started(call_id) | Ended(call_id):
            call = view.conversation.call(call_id)
            return call.since if call else 0
        case TurnEnded() | AnswerRejected():
            return view.turn.seq
        case _:
            return 0
