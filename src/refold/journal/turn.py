"""The turn under way, if there is one: how far it is and whether it must end."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    Asked,
    Ended,
    Entry,
    ModelAnswered,
    ModelFailed,
    Outcome,
    Stopped,
    TurnEnded,
    TurnStarted,
)

HEARS = (TurnStarted, Asked, ModelAnswered, ModelFailed, Ended, Stopped, TurnEnded)


class Turn(Struct, frozen=True):
    """What is known of this turn; of the last one, `outcome` and `reason` stay."""

    seq: int = 0  # of its TurnStarted; 0: none is under way
    why: Literal["words", "continue"] = "words"
    steps: int = 0  # answers so far
    asking: Asked | None = None  # asked, not answered
    asked: int = 0  # the seq of that
    last: ModelAnswered | None = None  # the newest answer of this turn
    noted: tuple[str, ...] = ()  # the policies whose notes the model was told
    cut: int = 0  # answers in a row that the output limit cut off
    refused: int = 0  # answers in a row all of whose calls were refused
    failed: str | None = None
    stopped: Stopped | None = None
    final: str | None = None  # a tool has said that this is the answer
    outcome: Outcome | Literal[""] = ""
    reason: str = ""
    ended: tuple[int, int] = (0, 0)  # of this answer: calls ended, of them refused


def apply(turn: Turn, entry: Entry) -> Turn:
    match entry.event:
        case TurnStarted(_, why):
            return Turn(entry.seq, why, outcome=turn.outcome, reason=turn.reason)
        case Asked(because=because):
            noted = (*turn.noted, *because)
            return replace(turn, asking=entry.event, asked=entry.seq, noted=noted)
        case ModelAnswered(stop=stop):
            return replace(
                turn,
                asking=None,
                last=entry.event,
                steps=turn.steps + 1,
                cut=turn.cut + 1 if stop == "length" else 0,
                ended=(0, 0),
            )
        case ModelFailed(reason):
            return replace(turn, asking=None, failed=reason)
        case Ended():
            return _one_less(turn, entry.event)
        case Stopped():
            return replace(turn, stopped=entry.event)
        case TurnEnded(outcome, reason):
            return Turn(outcome=outcome, reason=reason)
        case _:
            return turn


def _one_less(turn: Turn, end: Ended) -> Turn:
    ended, refused = turn.ended[0] + 1, turn.ended[1] + (end.outcome == "refused")
    final = end.control.answer if end.control else turn.final
    turn = replace(turn, ended=(ended, refused), final=final)
    called = len(turn.last.message.calls) if turn.last else 0
    if ended < called:
        return turn
    return replace(turn, refused=turn.refused + 1 if refused == called else 0)
