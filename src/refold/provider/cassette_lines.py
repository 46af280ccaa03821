"""What stands in a cassette: the format, and the values that its lines are read as.

    {"cassette": 1}
    {"asked": 1, "as": 0, "same": 0, "messages": [...], "request": {"system": "...", ...}}
    {"answered": 1, "deltas": [{"delta": "text", "text": "Yes."}, {"delta": "done", ...}]}
    {"asked": 2, "as": 1, "same": 3, "messages": [...]}
    {"answered": 2, "deltas": [], "error": {"kind": "Overloaded", "words": "...", ...}}

A call begins with the first `same` messages of the call `as` (the one before of the
same session) and adds its `messages`; of the `request` only what has changed since is
told. So a file grows as its session does. Where a message stands in a journal is no
part of the question, and neither is how it is watched. JSON that we only carry is a
string, to the byte; a picture is told by its digest. What ends early has
`"stopped": true`, or no answer at all.

`cassette_writing` makes the lines, `cassette_reading` reads them, and how a request
looks in plain values says `cassette_requests`.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from refold.errors import (
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    Unreachable,
)
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.values.log import Log

VERSION = 1

Plain: TypeAlias = Any  # what JSON can say

# What a delta or an error is called in a line. Of errors the first that fits.
DELTAS: dict[str, type[Delta]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "call": CallDelta,
    "retrying": Retrying,
    "done": Done,
}
ERRORS: dict[str, type[ProviderError]] = {
    "TooLong": TooLong,
    "Refused": Refused,
    "Overloaded": Overloaded,
    "Unreachable": Unreachable,
    "ProviderError": ProviderError,
}


class RecordedRequest(Struct, frozen=True):
    """A request in plain values, and where it stands in the file, if it does.

    `fields` holds all of the request but its messages, by name. It was asked in
    `line` and answered in `answered_at`; what was asked between the two was under
    way at the same time.
    """

    fields: dict[str, Plain]
    messages: Log[Plain]
    number: int = 0
    line: int = 0
    answered_at: int = 0


class RecordedAnswer(Struct, frozen=True):
    """All that came of the call `number`, an error last. `stopped`: it was left there."""

    number: int
    deltas: tuple[Delta, ...] = ()
    error: ProviderError | None = None
    stopped: bool = False


class Calls(Struct, frozen=True):
    """A whole cassette. `broken_at`: the line that was cut off, if one was."""

    asked: tuple[RecordedRequest, ...]
    answers: dict[int, RecordedAnswer]
    broken_at: int = 0


def nothing() -> RecordedRequest:
    """What a session's first call is told as a change of."""
    return RecordedRequest({}, Log[Plain]())
