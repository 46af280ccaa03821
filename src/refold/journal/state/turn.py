"""The running turn: its steps, cost, calls and reasons to end.

After it has ended, its outcome stays readable until the next turn starts.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.child_events import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    Denial,
    NestedCallMade,
)
from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Checkpointed,
    Compacted,
    Ended,
    Entry,
    Forked,
    Imported,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Outcome,
    Reserved,
    Settled,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.changed_files import merge_changes
from refold.values.control import Final, PlanReady
from refold.values.display import Diff
from refold.values.messages import ToolCall
from refold.values.usage import Budget, Estimate, Spent

EXPORTED_REASON = "it was exported while this turn was under way"
_MAX_LOST_LINES = 20  # lines of one file
_NO_FILES: Mapping[str, str] = MappingProxyType({})

EVENT_KINDS = (
    TurnStarted,
    ModelAsked,
    ModelAnswered,
    ModelFailed,
    AnswerRejected,
    Ended,
    Checkpointed,
    Stopped,
    TurnEnded,
    Reserved,
    Settled,
    Compacted,
    ChildBorn,
    ChildGranted,
    ChildEnded,
    Forked,
    Imported,
    NestedCallMade,
    Judged,
    Answered,
    ChildAsked,
    ChildAnswered,
)
# Events of all other kinds in earlier turns do not affect a new turn.
LASTING_KINDS = (TurnStarted, Stopped, TurnEnded, Imported)


class Reservation(Struct, frozen=True):
    """Budget that a model call reserved at event `seq`, while the call is not settled."""

    seq: int
    estimate: Estimate
    model: str = ""


class Turn(Struct, frozen=True):
    """The running turn. `outcome` and `reason` belong to the last turn that ended."""

    seq: int = 0  # of its TurnStarted; 0: no turn is running
    why: Literal["message", "continue"] = "message"
    steps: int = 0  # model responses in this turn
    open_request: ModelAsked | None = None  # the model call without a response yet
    request_seq: int = 0  # of the open request
    last_answer: ModelAnswered | None = None  # the latest response of this turn
    noted_by: tuple[str, ...] = ()  # the policies whose notes are in the conversation
    cut_in_a_row: int = 0  # responses in a row that the output limit cut off
    refused_in_a_row: int = 0  # responses in a row in which all calls were refused
    rejected: int = 0  # answers that were sent back
    dropped_in_a_row: int = 0  # responses that were dropped since the last whole one
    empty_in_a_row: int = 0  # those dropped responses that were empty
    failed: str | None = None
    too_long: str = ""  # the error of a request that was too long and is repeated once
    compacted: bool = False  # compacted since that error
    stopped: Stopped | None = None
    stop_seq: int = 0  # the seq of the last stop in the session
    final: str | None = None  # the final answer that a tool gave
    planned: bool = False  # a plan waits for the user's decision
    model: str = ""  # the model of the latest response, as provider/model
    answer: str = ""  # text of the latest response, with its cut-off pieces joined
    as_json: bool = False  # the answer is the JSON of a value
    spent: Spent = Spent()
    reserved: tuple[Reservation, ...] = ()
    granted: tuple[tuple[str, Budget], ...] = ()  # to running subagents, by name
    started_at: float = 0.0  # seconds since 1970
    now: float = 0.0  # the time of the latest response or result
    questions: tuple[str, ...] = ()  # ids of calls about which the user is asked now
    asked_at: float = 0.0  # when the first of these questions was asked
    waited: float = 0.0  # seconds spent waiting for answered questions
    nested: tuple[ToolCall, ...] = ()  # open calls made by code within other calls
    denials: tuple[Denial, ...] = ()  # of subagents, too
    allowed: int = 0  # calls that were not refused
    changed: Mapping[str, str] = _NO_FILES  # real path to "created", "changed", "deleted"
    # Maps real paths to lines that edits of this turn removed and did not restore.
    lost_lines: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    outcome: Outcome | Literal[""] = ""
    reason: str = ""
    # Of the latest response: the number of calls, and of refused calls.
    ended_calls: tuple[int, int] = (0, 0)

    def seconds(self, until: float) -> float:
        """Return the working time of the turn up to `until`, without waits for the user."""
        open_wait = max(0.0, until - self.asked_at) if self.questions else 0.0
        return max(0.0, until - self.started_at - self.waited - open_wait)


def apply(turn: Turn, entry: Entry) -> Turn:
    """Return the turn after this entry. A `TurnStarted` begins a new one."""
    match entry.event:  # the most frequent kinds first
        case Ended() | Checkpointed() | NestedCallMade():
            return _after_call(turn, entry.event, entry.at)
        case Judged() | ChildAsked() | Answered() | ChildAnswered():
            return _with_question(turn, entry.event, entry.at)
        case ModelAnswered() | ModelFailed():
            return _after_model_call(turn, entry.event, entry.at)
        case ModelAsked() | Reserved() | Settled() | Compacted():
            return _with_reservation(turn, entry.event, entry)
        case TurnStarted(_, why):
            return Turn(
                entry.seq,
                why,
                started_at=entry.at,
                now=entry.at,
                stop_seq=turn.stop_seq,
                outcome=turn.outcome,  # of the last turn, until this one ends
                reason=turn.reason,
            )
        case ChildBorn() | ChildGranted() | ChildEnded() | Forked():
            return _with_grant(turn, entry.event)
        case Stopped() | TurnEnded() | Imported():
            return _after_end(turn, entry.event, entry.seq)
        case AnswerRejected():
            turn = replace(turn, rejected=turn.rejected + 1, final=None)
        case _:
            pass
    return turn


def _with_question(
    turn: Turn, event: Judged | ChildAsked | Answered | ChildAnswered, time: float
) -> Turn:
    """Return the turn after a question to the user, or after the user's answer."""
    match event:
        case Judged(id_, "ask") | ChildAsked(id_) if turn.seq:
            asked_at = turn.asked_at if turn.questions else time
            return replace(turn, questions=(*turn.questions, id_), asked_at=asked_at)
        case Answered(id_) | ChildAnswered(id_):
            return _without_question(turn, id_, time)
        case _:
            return turn


def _without_question(turn: Turn, id_: str, time: float) -> Turn:
    """Return the turn without this question. The wait ends with the last question."""
    if id_ not in turn.questions:
        return turn
    left = tuple(question for question in turn.questions if question != id_)
    wait = 0.0 if left else max(0.0, time - turn.asked_at)
    return replace(turn, questions=left, waited=turn.waited + wait)


def _with_reservation(
    turn: Turn, event: ModelAsked | Reserved | Settled | Compacted, entry: Entry
) -> Turn:
    """Return the turn after a model call began, budget was reserved or settled, or the
    conversation was compacted.
    """
    match event:
        case ModelAsked():
            estimate = Estimate(event.dollars, event.tokens)
            reservations = (*turn.reserved, Reservation(entry.seq, estimate))
            return replace(
                turn,
                open_request=event,
                request_seq=entry.seq,
                noted_by=(*turn.noted_by, *event.policies),
                reserved=reservations,
            )
        case Compacted(kind):  # only pruning leaves all notes in the conversation
            noted_by = turn.noted_by if kind == "prune" else ()
            return replace(turn, now=entry.at, noted_by=noted_by, compacted=True)
        case _ if not turn.seq:  # no turn is running
            return turn
        case Reserved(_, model, dollars, tokens):
            reservation = Reservation(entry.seq, Estimate(dollars, tokens), model)
            return replace(turn, reserved=(*turn.reserved, reservation))
        case Settled(reserved_at, usage, _, cost):
            spent = turn.spent if usage is None else turn.spent.plus(usage, cost)
            reservations = _without_reservation(turn.reserved, reserved_at)
            return replace(turn, reserved=reservations, spent=spent)


def _after_model_call(turn: Turn, event: ModelAnswered | ModelFailed, time: float) -> Turn:
    """Return the turn after a response, or after a model call that failed."""
    if isinstance(event, ModelFailed):
        return _after_failed_call(turn, event, time)
    # A response continues the answer before it if the output limit cut that off.
    answer_so_far = turn.answer if turn.cut_in_a_row else ""
    return replace(
        turn,
        open_request=None,
        now=time,
        reserved=_without_reservation(turn.reserved, turn.request_seq),
        too_long="",
        dropped_in_a_row=0,
        empty_in_a_row=0,
        last_answer=event,
        model=event.model,
        steps=turn.steps + 1,
        answer=answer_so_far + event.message.text,
        as_json=False,
        spent=turn.spent.plus(event.usage, event.cost),
        cut_in_a_row=turn.cut_in_a_row + 1 if event.stop == "length" else 0,
        ended_calls=(0, 0),
    )


def _after_failed_call(turn: Turn, failure: ModelFailed, time: float) -> Turn:
    """Return the turn after a model call that failed, or whose response was dropped."""
    spent = turn.spent
    if failure.usage is not None:
        spent = spent.plus(failure.usage, failure.cost)
    reservations = _without_reservation(turn.reserved, turn.request_seq)
    if failure.dropped:  # the request stays open, with its notes and tools
        is_empty = failure.kind == "EmptyAnswer"
        return replace(
            turn,
            now=time,
            reserved=reservations,
            spent=spent,
            dropped_in_a_row=turn.dropped_in_a_row + 1,
            empty_in_a_row=turn.empty_in_a_row + 1 if is_empty else turn.empty_in_a_row,
        )
    turn = replace(turn, open_request=None, now=time, reserved=reservations, spent=spent)
    # A provider that accepted earlier steps may refuse a request that has become too long
    # with another error.
    may_be_too_long = failure.kind == "BadRequest" and turn.steps > 0
    if (failure.kind == "TooLong" or may_be_too_long) and not turn.too_long:
        return replace(turn, too_long=failure.reason, compacted=False)
    return replace(turn, failed=failure.reason, answer=failure.partial_text or turn.answer)


def _with_grant(turn: Turn, event: ChildBorn | ChildGranted | ChildEnded | Forked) -> Turn:
    """Return the turn with a subagent's grant counted as used.

    After the subagent's end, only what it used is counted.
    """
    if isinstance(event, Forked):  # the source has the subagents and their grants
        return replace(turn, granted=())
    if not turn.seq:  # no turn is running
        return turn
    other_grants = tuple(grant for grant in turn.granted if grant[0] != event.child)
    match event:
        case ChildBorn(child, grant=budget) | ChildGranted(child, budget):
            return replace(turn, granted=(*other_grants, (child, budget)))
        case ChildEnded(spent=spent, denials=denials):
            return replace(
                turn,
                granted=other_grants,
                spent=turn.spent + spent,
                denials=(*turn.denials, *denials),
            )


def _without_reservation(
    reservations: tuple[Reservation, ...], seq: int
) -> tuple[Reservation, ...]:
    return tuple([reservation for reservation in reservations if reservation.seq != seq])


def _after_call(
    turn: Turn, event: Ended | Checkpointed | NestedCallMade, time: float
) -> Turn:
    """Return the turn after a call ended, code made a call, or a checkpoint found changes."""
    match event:
        case Ended():
            return _after_call_end(turn, event, time)
        case NestedCallMade(call):
            return replace(turn, nested=(*turn.nested, call))
        case Checkpointed(changed=changed):
            return replace(turn, now=time, changed=merge_changes(turn.changed, changed))


def _after_call_end(turn: Turn, end: Ended, time: float) -> Turn:
    """Return the turn after the end of a call: of the last response, or of code in a call.

    A tool can set the final answer or submit a plan, by which the turn will end.
    """
    turn = _without_question(turn, end.call_id, time)
    calls = turn.last_answer.message.calls if turn.last_answer else ()
    if end.call_id not in [call.id for call in calls]:
        return _with_changes(_end_nested_call(turn, end, time), end)
    was_refused = end.outcome == "refused"
    ended_count, refused_count = turn.ended_calls
    ended_count += 1
    allowed_count = turn.allowed
    if was_refused:
        refused_count += 1
    else:
        allowed_count += 1
    fields: dict[str, Any] = {
        "now": time,
        "ended_calls": (ended_count, refused_count),
        "allowed": allowed_count,
    }
    if ended_count >= len(calls):  # the response has no other call that is open
        are_all_refused = refused_count == len(calls)
        fields["refused_in_a_row"] = turn.refused_in_a_row + 1 if are_all_refused else 0
    if was_refused:
        denied = (Denial(call, end.text) for call in calls if call.id == end.call_id)
        fields["denials"] = (*turn.denials, *denied)
    match end.control:
        case Final(answer, as_json):
            fields |= {"final": answer, "answer": answer, "as_json": as_json}
        case PlanReady(_, plan):
            fields |= {"planned": True, "answer": plan, "as_json": False}
        case _:
            pass
    return _with_changes(replace(turn, **fields), end)


def _end_nested_call(turn: Turn, end: Ended, time: float) -> Turn:
    """End a call that code made within another call."""
    nested_call = next((call for call in turn.nested if call.id == end.call_id), None)
    left = tuple(call for call in turn.nested if call.id != end.call_id)
    denials = turn.denials
    if nested_call and end.outcome == "refused":
        denials = (*denials, Denial(nested_call, end.text))
    return replace(turn, now=time, nested=left, denials=denials)


def _with_changes(turn: Turn, end: Ended) -> Turn:
    """Return the turn with the files that the call has changed."""
    if not end.shown:
        return turn
    diffs = [shown for shown in end.shown if isinstance(shown, Diff)]
    if not diffs:
        return turn
    lost_lines = dict(turn.lost_lines)
    for diff in diffs:
        lost_lines[diff.path] = _lost_lines(lost_lines.get(diff.path, ()), diff)
    changed = merge_changes(turn.changed, [(diff.path, diff.kind) for diff in diffs])
    return replace(turn, changed=changed, lost_lines=lost_lines)


def _lost_lines(before: tuple[str, ...], diff: Diff) -> tuple[str, ...]:
    """Return the lines that edits have removed: `before`, and those that `diff` removes.

    Lines that `diff` adds are left out.
    """
    rows = [(row[:1], row[1:].strip()) for row in diff.text.split("\n")]
    added = {text for sign, text in rows if sign == "+"}
    removed = [text for sign, text in rows if sign == "-" and text]
    left = dict.fromkeys(text for text in (*before, *removed) if text not in added)
    return tuple(left)[:_MAX_LOST_LINES]


def _after_import(turn: Turn, seq: int) -> Turn:
    """End the turn of an imported session. Its waiting messages start no turn."""
    if turn.seq:
        turn = _after_end(turn, TurnEnded("interrupted", EXPORTED_REASON), seq)
    return replace(turn, stopped=None, stop_seq=seq)


def _after_end(turn: Turn, event: Stopped | TurnEnded | Imported, seq: int) -> Turn:
    """Return the turn after a request to stop, or the values that stay after its end."""
    if isinstance(event, Imported):
        return _after_import(turn, seq)
    if isinstance(event, Stopped):
        return replace(turn, stopped=event, stop_seq=seq)
    return Turn(
        steps=turn.steps,
        stop_seq=turn.stop_seq,
        outcome=event.outcome,
        reason=event.reason,
        model=turn.model,
        answer=turn.answer,
        as_json=turn.as_json,
        spent=turn.spent,
        denials=turn.denials,
        allowed=turn.allowed,
        changed=turn.changed,
    )
