"""The turns of a session by number, in the order in which they ended. Rewound ones count."""

from collections.abc import Iterable

from refold.errors import BadInput
from refold.journal.events.kinds import Entry, TurnEnded


def end_of_turn(entries: Iterable[Entry], turn: int, session: str) -> int:
    """The number of the event that ended this turn. Raises `BadInput` if there is none."""
    ends = [entry.seq for entry in entries if isinstance(entry.event, TurnEnded)]
    if not 0 < turn <= len(ends):
        ended = "1 turn has" if len(ends) == 1 else f"{len(ends)} turns have"
        raise BadInput(f"{session} has no turn {turn}: {ended} ended")
    return ends[turn - 1]
