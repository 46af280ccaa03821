"""The fold: computes the view of a session, which is its whole state, from its events.

A view consists of sub-folds, one module for each concern. Each gets the kinds of events in
its `EVENT_KINDS`. A sub-fold that is reset with each turn lists in `LASTING_KINDS` the
kinds that it needs from earlier turns; others are skipped. Only `_apply_entry` changes a
view. Everything is pure, so a view can be discarded and folded again. `engine.decide`
decides what to do next.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Delivered,
    Ended,
    Entry,
    Event,
    Imported,
    Judged,
    MessageEdited,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    RequestLogged,
    Rewound,
    Said,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state import (
    account,
    background,
    changed_files,
    checkpoints,
    children,
    conversation,
    failures,
    file_hashes,
    hook_runs,
    outside_text,
    plans,
    recent_calls,
    reminders,
    rights,
    session_info,
    turn,
)
from refold.journal.state.account import Account
from refold.journal.state.background import MAX_WAKES, Background, BackgroundCommand
from refold.journal.state.changed_files import ChangedFiles
from refold.journal.state.checkpoints import Checkpoints
from refold.journal.state.children import Children
from refold.journal.state.conversation import REQUEST_SENDERS, Conversation, Undelivered
from refold.journal.state.failures import Failures
from refold.journal.state.file_hashes import FileHashes
from refold.journal.state.hook_runs import HookRuns
from refold.journal.state.outside_text import OutsideText
from refold.journal.state.plans import Plans
from refold.journal.state.recent_calls import RecentCalls
from refold.journal.state.reminders import Reminders
from refold.journal.state.rights import Rights
from refold.journal.state.session_info import SessionInfo
from refold.journal.state.turn import Turn
from refold.values.growing import Log
from refold.values.usage import Budget


class Mark(Struct, frozen=True):
    """The conversation just before `seq`. It costs one reference, and no copy."""

    seq: int
    conversation: Conversation


class View(Struct, frozen=True):
    """The state of a session. It is derived from the journal and never authoritative."""

    seq: int = 0
    conversation: Conversation = field(default_factory=Conversation)
    account: Account = Account()
    turn: Turn = Turn()
    rights: Rights = Rights()
    plans: Plans = Plans()
    file_hashes: FileHashes = FileHashes()
    session: SessionInfo = SessionInfo()
    checkpoints: Checkpoints = Checkpoints()
    changed_files: ChangedFiles = ChangedFiles()
    children: Children = Children()
    background: Background = Background()
    recent_calls: RecentCalls = RecentCalls()
    reminders: Reminders = Reminders()
    failures: Failures = Failures()
    hook_runs: HookRuns = HookRuns()
    outside_text: OutsideText = OutsideText()
    marks: Log[Mark] = field(default_factory=Log[Mark])

    def mark_at(self, seq: int) -> Mark | None:
        return _find_mark(self.marks, seq)

    @property
    def turn_requests(self) -> Sequence[Undelivered]:
        """Return the waiting messages that may begin a turn, oldest first.

        Messages of background commands are left out once they have begun too many turns in a
        row.
        """
        may_wake = self.background.wakes <= MAX_WAKES
        return [
            message
            for message in self.conversation.undelivered
            if message.said.sender in REQUEST_SENDERS or (message.said.wakes and may_wake)
        ]

    @property
    def commands_to_await(self) -> Sequence[BackgroundCommand]:
        """Return the running commands that will wake the agent, once the agent has
        answered.
        """
        answered = not self.turn.seq and self.turn.outcome in ("answered", "final")
        return self.background.commands_to_await if answered else ()

    @property
    def message_queue(self) -> Sequence[Undelivered]:
        """The user's messages that wait for the end of the turn, oldest first.

        If the turn was stopped, messages that were meant for its next request wait, too.
        """
        if not self.turn.seq:
            return ()
        undelivered = self.conversation.undelivered
        of_user = [message for message in undelivered if message.said.sender == "person"]
        if self.turn.stopped is not None:
            return of_user
        return [message for message in of_user if message.said.when == "next"]


_PART_MODULES = {
    "conversation": conversation, "account": account, "turn": turn,
    "rights": rights, "plans": plans, "file_hashes": file_hashes, "session": session_info,
    "checkpoints": checkpoints, "changed_files": changed_files, "children": children, "background": background,
    "recent_calls": recent_calls, "reminders": reminders, "failures": failures, "hook_runs": hook_runs,
    "outside_text": outside_text,
}  # fmt: skip
# The name of a part, and the function that applies an entry to it.
Part: TypeAlias = tuple[str, Callable[[Any, Entry], Any]]
PartsByEvent: TypeAlias = Mapping[type, tuple[Part, ...]]
KindsOf: TypeAlias = Callable[[ModuleType], tuple[type, ...]]


def _parts_by_event(kinds_of: KindsOf) -> PartsByEvent:
    """Return the parts of a view that each kind of event changes."""
    by_kind = dict[type, dict[str, Part]]()
    for name, module in _PART_MODULES.items():
        for kind in kinds_of(module):
            by_kind.setdefault(kind, {})[name] = (name, module.apply)
    return {kind: tuple(parts.values()) for kind, parts in by_kind.items()}


_PARTS_BY_EVENT = _parts_by_event(lambda module: module.EVENT_KINDS)
# The parts that events of earlier turns still change.
_LASTING_PARTS_BY_EVENT = _parts_by_event(
    lambda module: getattr(module, "LASTING_KINDS", module.EVENT_KINDS)
)
_MARK_KINDS = frozenset({Said, ModelAsked, Rewound, MessageEdited, Imported})


def apply(view: View, entry: Entry) -> View:
    """Return the view after this entry."""
    parts = asdict(view)
    _apply_entry(parts, entry, _PARTS_BY_EVENT)
    return View(**parts)


def fold(entries: Iterable[Entry], start: View | None = None) -> View:
    """Return the view after all entries, from the view `start` or from an empty one.

    The result is that of `apply` for each entry, but is computed faster.
    """
    parts = asdict(View() if start is None else start)
    all_entries = tuple(entries)
    newest_turn = _index_of_newest_turn(all_entries)
    # The start of a turn resets some parts, so earlier events need not change them.
    for entry in all_entries[:newest_turn]:
        _apply_entry(parts, entry, _LASTING_PARTS_BY_EVENT)
    for entry in all_entries[newest_turn:]:
        _apply_entry(parts, entry, _PARTS_BY_EVENT)
    return View(**parts)


def _index_of_newest_turn(entries: Sequence[Entry]) -> int:
    """Return the index of the last `TurnStarted`; 0 if there is none."""
    for index in range(len(entries) - 1, -1, -1):
        if isinstance(entries[index].event, TurnStarted):
            return index
    return 0


def _apply_entry(parts: dict[str, Any], entry: Entry, parts_by_event: PartsByEvent) -> None:
    """Apply `entry` to `parts`, the fields of a view by name."""
    kind = type(entry.event)
    if kind in _MARK_KINDS:
        _update_marks(parts, entry)
    for name, apply_to_part in parts_by_event.get(kind, ()):
        parts[name] = apply_to_part(parts[name], entry)
    parts["seq"] = entry.seq


def _update_marks(parts: dict[str, Any], entry: Entry) -> None:
    """Add a mark for the conversation before `entry`, and carry out a rewind to a mark."""
    current: Conversation = parts["conversation"]
    marks: Log[Mark] = parts["marks"]
    # A mark between a call and its result would let a rewind repeat the call.
    if not current.calls:
        parts["marks"] = marks.plus(Mark(entry.seq, current))
    match entry.event:
        case Rewound(seq) if mark := _find_mark(marks, seq):
            parts["conversation"] = mark.conversation
        case Imported():  # the file may be forged, so no rewind goes into imported events
            parts["marks"] = Log[Mark]()
        case _:
            pass


def _find_mark(marks: Log[Mark], seq: int) -> Mark | None:
    index = bisect_left(marks, seq, key=lambda mark: mark.seq)
    candidate = marks[index] if index < len(marks) else None
    return candidate if candidate and candidate.seq == seq else None


def cause_of(event: Event, view: View) -> int:
    """Return the seq of the event that led to `event`; 0 if it came from outside.

    A response is caused by its request, a verdict by the response with the call, an end
    by its start.
    """
    match event:
        case TurnStarted(cause):
            return cause
        case Delivered(messages):
            return messages[0] if messages else 0
        case ModelAnswered() | ModelFailed() | RequestLogged():
            return view.turn.request_seq
        case Judged(call_id) | Answered(call_id) | Started(call_id) | Ended(call_id):
            call = view.conversation.call(call_id)
            return call.since if call else 0
        case TurnEnded() | AnswerRejected():
            return view.turn.seq
        case _:
            return 0


class BudgetUsed(Struct, frozen=True):
    """What a turn has used of its budget, including reservations. `tokens` are uncached
    tokens.
    """

    dollars: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    priced: bool = True  # whether all prices are known
    reserved_dollars: float = 0.0
    reserved_tokens: int = 0


def budget_used(view: View) -> BudgetUsed:
    """Return what the running turn has used of its budget."""
    turn = view.turn
    spent = turn.spent
    priced = not spent.unpriced
    reserved_dollars = 0.0
    reserved_tokens = 0
    reserved_calls = len(turn.reserved)
    for reservation in turn.reserved:
        reserved_dollars += reservation.estimate.dollars or 0.0
        reserved_tokens += reservation.estimate.tokens
        priced = priced and reservation.estimate.dollars is not None
    for _, grant in turn.granted:
        reserved_dollars += grant.dollars or 0.0
        reserved_tokens += grant.tokens or 0
        reserved_calls += grant.calls or 0
    return BudgetUsed(
        dollars=spent.dollars + reserved_dollars,
        tokens=spent.usage.uncached + reserved_tokens,
        calls=spent.answers + reserved_calls,
        seconds=turn.seconds(until=turn.now),
        priced=priced,
        reserved_dollars=reserved_dollars,
        reserved_tokens=reserved_tokens,
    )


def budget_of(view: View, default: Budget) -> Budget:
    """Return the budget that the user chose in this session, or the one in the settings."""
    return default if view.rights.budget is None else view.rights.budget
