"""The turn under way, if there is one: how far it is and whether it must end.

What it came to stays readable until the next one starts.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    Asked,
    Checkpointed,
    Ended,
    Entry,
    ModelAnswered,
    ModelFailed,
    Outcome,
    Rejected,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.values.control import Final, PlanReady
from refold.values.messages import ToolCall
from refold.values.shown import Diff
from refold.values.usage import Spent

_NOTHING: Mapping[str, str] = MappingProxyType({})

HEARS = (
    TurnStarted,
    Asked,
    ModelAnswered,
    ModelFailed,
    Rejected,
    Ended,
    Checkpointed,
    Stopped,
    TurnEnded,
)


class Denial(Struct, frozen=True):
    """A call that a rule or a person refused. `reason` is the model's copy of why."""

    call: ToolCall
    reason: str


class Turn(Struct, frozen=True):
    """`outcome` and `reason` are of the last turn that ended."""

    seq: int = 0  # of its TurnStarted; 0: none is under way
    why: Literal["words", "continue"] = "words"
    steps: int = 0  # answers so far
    asking: Asked | None = None  # asked, not answered
    asked: int = 0  # the seq of that
    last: ModelAnswered | None = None  # the newest answer of this turn
    noted: tuple[str, ...] = ()  # the policies whose notes the model was told
    cut: int = 0  # answers in a row that the output limit cut off
    refused: int = 0  # answers in a row all of whose calls were refused
    rejected: int = 0  # answers that had not the shape that was asked for
    failed: str | None = None
    stopped: Stopped | None = None
    stop: int = 0  # the seq of the newest stop of the session
    final: str | None = None  # a tool has said that this is the answer
    planned: bool = False  # a plan has been made, and waits for the person
    model: str = ""  # who gave the newest answer, as provider/model
    answer: str = ""  # the words of the newest answer, its cut-off pieces joined
    spent: Spent = Spent()
    denials: tuple[Denial, ...] = ()
    changed: Mapping[str, str] = _NOTHING  # real path to "created", "changed", "deleted"
    outcome: Outcome | Literal[""] = ""
    reason: str = ""
    ended: tuple[int, int] = (0, 0)  # of this answer: calls ended, of them refused


def apply(turn: Turn, entry: Entry) -> Turn:
    match entry.event:
        case TurnStarted(_, why):
            before = (turn.outcome, turn.reason)
            return Turn(entry.seq, why, outcome=before[0], reason=before[1], stop=turn.stop)
        case Asked(because=because):
            noted = (*turn.noted, *because)
            return replace(turn, asking=entry.event, asked=entry.seq, noted=noted)
        case ModelAnswered() | ModelFailed():
            return _answered(turn, entry.event)
        case Rejected():
            return replace(turn, rejected=turn.rejected + 1, final=None)
        case Ended() | Checkpointed():
            return _worked(turn, entry.event)
        case Stopped():
            return replace(turn, stopped=entry.event, stop=entry.seq)
        case TurnEnded(outcome, reason):
            return _over(turn, outcome, reason)
        case _:
            return turn


def _answered(turn: Turn, event: ModelAnswered | ModelFailed) -> Turn:
    match event:
        case ModelFailed(reason, _, shown, usage, cost=cost):
            answer = shown or turn.answer
            spent = turn.spent if usage is None else turn.spent.plus(usage, cost)
            return replace(turn, asking=None, failed=reason, answer=answer, spent=spent)
        case ModelAnswered(message, usage, stop, cost=cost):
            return replace(
                turn,
                asking=None,
                last=event,
                model=event.model,
                steps=turn.steps + 1,
                answer=(turn.answer if turn.cut else "") + message.text,
                spent=turn.spent.plus(usage, cost),
                cut=turn.cut + 1 if stop == "length" else 0,
                ended=(0, 0),
            )


def _worked(turn: Turn, event: Ended | Checkpointed) -> Turn:
    match event:
        case Checkpointed(changed=changed):
            return replace(turn, changed=_merged(turn.changed, changed))
        case Ended():
            return _one_less(turn, event)


def _one_less(turn: Turn, end: Ended) -> Turn:
    calls = turn.last.message.calls if turn.last else ()
    was_refused = end.outcome == "refused"
    ended, refused = turn.ended[0] + 1, turn.ended[1] + was_refused
    changed: dict[str, Any] = {"ended": (ended, refused)}
    if ended >= len(calls):
        changed["refused"] = turn.refused + 1 if refused == len(calls) else 0
    if was_refused:
        denied = (Denial(c, end.text) for c in calls if c.id == end.call_id)
        changed["denials"] = (*turn.denials, *denied)
    match end.control:
        case Final(answer):
            changed["final"] = changed["answer"] = answer
        case PlanReady(_, plan):
            changed["planned"], changed["answer"] = True, plan
        case _:
            pass
    if end.shown:
        diffs = [(d.path, d.kind) for d in end.shown if isinstance(d, Diff)]
        changed["changed"] = _merged(turn.changed, diffs)
    return replace(turn, **changed)


def _merged(
    before: Mapping[str, str], news: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
    if not news:
        return before
    changed = {**before}
    for path, kind in news:
        # A file created and then changed was, all in all, created.
        new = changed.get(path) == "created" and kind == "changed"
        changed[path] = "created" if new else kind
    return changed


def _over(turn: Turn, outcome: Outcome, reason: str) -> Turn:
    return Turn(
        steps=turn.steps,
        stop=turn.stop,
        outcome=outcome,
        reason=reason,
        model=turn.model,
        answer=turn.answer,
        spent=turn.spent,
        denials=turn.denials,
        changed=turn.changed,
    )
