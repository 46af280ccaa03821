"""Whether the model has read text from outside since the user last spoke. Not rewound.

`engine.execute` marks results from outside, and `permissions` decides what that changes.
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
    """`since` is the seq of the newest such text that the user has not approved, or 0.

    `asked` are the open questions that it caused: call id and seq. `ever` is never reset:
    a subagent's report may contain what it read, whatever the user answered there.
    """

    since: int = 0
    asked: tuple[tuple[str, int], ...] = ()
    ever: bool = False


def apply(text: OutsideText, entry: Entry) -> OutsideText:
    match entry.event:
        case Ended(call_id, outside=outside) if outside or text.asked:
            closed = replace(text, asked=_without_question(text, call_id))
            return replace(closed, since=entry.seq, ever=True) if outside else closed
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
    """An approval covers the text read before the user was asked; a denial covers none."""
    asked_seq = dict(text.asked).get(call_id, 0)
    if not asked_seq:
        return text
    since = 0 if allowed and asked_seq > text.since else text.since
    return replace(text, since=since, asked=_without_question(text, call_id))


def _without_question(text: OutsideText, call_id: str) -> tuple[tuple[str, int], ...]:
    return tuple(question for question in text.asked if question[0] != call_id)
