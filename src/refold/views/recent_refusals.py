"""Lists the newest calls of a session that rules or the user have refused. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from refold.journal.events.kinds import Answered, Ended, Entry, Judged, ModelAnswered
from refold.values.messages import ToolCall

_MAX_REFUSALS = 20


class Refusal(Struct, frozen=True):
    call: ToolCall
    reason: str  # the reason of the rules or the user
    by_user: bool


def recent_refusals(entries: Iterable[Entry]) -> list[Refusal]:
    """Return the newest refused calls, newest first.

    Of calls with the same tool and arguments, only one is listed.
    """
    calls = dict[str, ToolCall]()
    # By the id of the call: the reason, and whether it is the user's.
    reasons = dict[str, tuple[str, bool]]()
    refusals = dict[tuple[str, bytes], Refusal]()  # by tool and arguments, oldest first
    for entry in entries:
        match entry.event:
            case ModelAnswered(message):
                parts = message.parts
                calls |= {part.id: part for part in parts if isinstance(part, ToolCall)}
            case Judged(id_, verdict="deny", reason=reason):
                reasons[id_] = reason, False
            case Answered(id_, False, reason):
                reasons[id_] = reason, True
            case Ended(id_, "refused") if id_ in calls and id_ in reasons:
                call = calls[id_]
                reason, by_user = reasons[id_]
                key = call.name, bytes(call.arguments)
                refusals.pop(key, None)  # so that the call becomes the newest
                refusals[key] = Refusal(call, reason, by_user)
            case _:
                pass
    return list(reversed(refusals.values()))[:_MAX_REFUSALS]
