"""Whether the model has read text from outside since the user last approved.

A rewind does not change that. `engine.execute` marks results from outside, and
`permissions` decides on the consequences.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Answered,
    BackgroundEnded,
    ChildAnswered,
    ChildAsked,
    ChildEnded,
    Ended,
    Entry,
    Judged,
    Said,
)

EVENT_KINDS = (
    Ended,
    ChildEnded,
    BackgroundEnded,
    Said,
    Judged,
    ChildAsked,
    Answered,
    ChildAnswered,
)


class OutsideText(Struct, frozen=True):
    """Whether the model has read text from outside.

    `since` is the seq of the newest text that the user has not approved, or 0. `asked` are the
    open questions that the text caused: call id and seq. `ever` is never reset: a subagent's
    report may contain text that the subagent read, whatever the user answered in its session.
    """

    since: int = 0
    asked: tuple[tuple[str, int], ...] = ()
    ever: bool = False


def apply(text: OutsideText, entry: Entry) -> OutsideText:
    """Return the state after this entry. An event of another kind changes nothing."""
    match entry.event:
        case Ended(call_id, outside=outside) if outside or text.asked:
            text = replace(text, asked=_without_question(text, call_id))
            return replace(text, since=entry.seq, ever=True) if outside else text
        case ChildEnded(outside=True) | BackgroundEnded(outside=True) | Said(outside=True):
            return replace(text, since=entry.seq, ever=True)
        case Said(sender="person") if text.since:
            return replace(text, since=0)
        case Judged(call_id, "ask", outside=True) | ChildAsked(call_id, outside=True):
            return replace(
                text, asked=(*_without_question(text, call_id), (call_id, entry.seq))
            )
        case Answered(call_id, allowed) | ChildAnswered(call_id, allowed=allowed):
            return _apply_answer(text, call_id, allowed=allowed)
        case _:
            return text


def _apply_answer(text: OutsideText, call_id: str, *, allowed: bool) -> OutsideText:
    """Return the state after the user's answer to a question.

    An approval covers the text that was read before the question. A denial covers no text.
    """
    asked_seq = dict(text.asked).get(call_id, 0)
    if not asked_seq:
        return text
    answered = replace(text, asked=_without_question(text, call_id))
    if allowed and asked_seq > text.since:
        return replace(answered, since=0)
    return answered


def _without_question(text: OutsideText, call_id: str) -> tuple[tuple[str, int], ...]:
    return tuple(question for question in text.asked if question[0] != call_id)
