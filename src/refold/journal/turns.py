"""Numbers the turns of a session in the order in which they ended. Rewound turns count, too."""

from collections.abc import Iterable

from refold.errors import BadInput
from refold.journal.events.kinds import Entry, TurnEnded


def end_of_turn(entries: Iterable[Entry], turn: int, session: str) -> int:
    """Return the number of the event that ended this turn.

    Raises `BadInput` for an unknown turn.
    """
    ends = [entry.seq for entry in entries if isinstance(entry.event, TurnEnded)]
    if not 0 < turn <= len(ends):
        ended = "1 turn has" if len(ends) == 1 else f"{len(ends)} turns have"
        raise BadInput(f"{session} has no turn {turn}: {ended} ended")
    return ends[turn - 1]
