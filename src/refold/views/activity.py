"""Lists what a session did, in order: model steps, tool calls, side calls, subagents. Pure.

Each of these is a span. The list is made from all entries of the journal, because the session's
view forgets spans that have ended. A span without an end is running, or its process exited:
`session_tree.span_state` decides which.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Answered,
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    NestedCallMade,
    RequestLogged,
    Reserved,
    Settled,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.values.messages import ToolCall
from refold.values.usage import Spent, Usage

LEAF_PURPOSE = "leaf"


class ModelStep(Struct, frozen=True):
    """A model call of the conversation, and its response. `number` counts the calls from 1."""

    number: int
    seq: int
    at: float
    asked: ModelAsked
    turn: int = 0
    end: ModelAnswered | ModelFailed | None = None
    ended: float | None = None
    traced: tuple[int, ...] = ()  # numbers of its logged requests in the session, from 1

    @property
    def id(self) -> str:
        return f"step-{self.number}"


class ToolStep(Struct, frozen=True):
    """A tool call, made by the model or by code that another call runs.

    `step` is the number of the model step in which the call was made. `made` is the event of
    a call that code made; for a call of the model, it is None.
    """

    call: ToolCall
    seq: int
    at: float
    step: int
    made: NestedCallMade | None = None
    judged: Judged | None = None
    answered: Answered | None = None
    answered_by: str = ""  # the name of the person; "": a person without a name
    started: float | None = None
    end: Ended | None = None
    ended: float | None = None

    @property
    def id(self) -> str:
        return self.call.id


class SideCall(Struct, frozen=True):
    """A model call outside of the conversation.

    The call is a leaf (made by code), a summary, or a request for notes.
    """

    reserved: Reserved
    seq: int
    at: float
    end: Settled | None = None
    ended: float | None = None

    @property
    def id(self) -> str:
        number = self.reserved.leaf or self.seq
        return f"{self.reserved.purpose}-{number}"

    @property
    def is_leaf(self) -> bool:
        return self.reserved.purpose == LEAF_PURPOSE


class SubagentRun(Struct, frozen=True):
    """A subagent. `end` is None while it runs."""

    born: ChildBorn
    seq: int
    at: float
    end: ChildEnded | None = None
    ended: float | None = None

    @property
    def id(self) -> str:
        return self.born.child


Span: TypeAlias = ModelStep | ToolStep | SideCall | SubagentRun
SpanOutcome: TypeAlias = Literal["", "done", "failed"]  # "": it has not ended


class Activity(Struct, frozen=True):
    """The spans of a session.

    `seconds` is the total duration of the ended turns. `since` is the time at which the running
    turn began, or None.
    """

    spans: tuple[Span, ...] = ()
    seconds: float = 0.0
    since: float | None = None
    last: float = 0.0  # when the newest entry was written

    @property
    def steps(self) -> tuple[ModelStep, ...]:
        return tuple(span for span in self.spans if isinstance(span, ModelStep))

    @property
    def calls(self) -> tuple[ToolStep, ...]:
        return tuple(span for span in self.spans if isinstance(span, ToolStep))

    @property
    def leaves(self) -> tuple[SideCall, ...]:
        return tuple(
            span for span in self.spans if isinstance(span, SideCall) and span.is_leaf
        )

    def find_span(self, name: str) -> Span | None:
        """Return the span with this id, or None.

        If several spans have the id, as in a fork, return the newest.
        """
        return next((span for span in reversed(self.spans) if span.id == name), None)


class LeafCounts(Struct, frozen=True):
    """The number of leaves (model calls that code made), by their outcome."""

    done: int = 0
    failed: int = 0
    open: int = 0
    remembered: int = 0  # how many of the `done` ones were answered from the cache

    @property
    def count(self) -> int:
        return self.done + self.failed + self.open

    def __add__(self, other: "LeafCounts") -> "LeafCounts":
        return LeafCounts(
            self.done + other.done,
            self.failed + other.failed,
            self.open + other.open,
            self.remembered + other.remembered,
        )


def leaf_counts(activity: Activity) -> LeafCounts:
    """Return the number of leaves by outcome."""
    leaves = activity.leaves
    outcomes = [side_call_outcome(leaf) for leaf in leaves]
    return LeafCounts(
        done=outcomes.count("done"),
        failed=outcomes.count("failed"),
        open=outcomes.count(""),
        remembered=sum(1 for leaf in leaves if leaf.end is not None and leaf.end.cached),
    )


def side_call_outcome(side_call: SideCall) -> SpanOutcome:
    """Return "done" or "failed"; "" if the call has not ended."""
    if side_call.end is None:
        return ""
    return "failed" if side_call.end.failed else "done"


def spent_by(span: Span) -> Spent:
    """Return the usage of a span.

    A tool call has no usage. The usage of a subagent includes all its calls and subagents.
    """
    match span:
        case ModelStep(end=ModelAnswered(usage=usage, cost=cost)):
            return Spent().plus(usage, cost)
        case ModelStep(end=ModelFailed(usage=Usage() as usage, cost=cost)):
            return Spent().plus(usage, cost)
        case SideCall(end=Settled(usage=Usage() as usage, cost=cost)):
            return Spent().plus(usage, cost)
        case SubagentRun(end=ChildEnded(spent=spent)):
            return spent
        case _:
            return Spent()


def activity_of(entries: Iterable[Entry]) -> Activity:
    """Return the spans of a session, from its entries."""
    fold = ActivityFold()
    for entry in entries:
        fold.add(entry)
    return fold.result()


class ActivityFold:
    """Collects spans from entries, which may be added as the session grows."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._indexes = dict[str | int, int]()  # indexes of calls, side calls and children
        self._step_index = -1  # the index of the newest model step; -1: there is none
        self._step_count = 0  # model steps
        self._traced_count = 0  # logged requests
        self._seconds = 0.0  # the duration of all turns that have ended
        self._since: float | None = None  # when the running turn began
        self._last = 0.0  # the time of the last event

    @property
    def spans(self) -> Sequence[Span]:
        """All spans from the entries added so far, in the order of their first entries."""
        return self._spans

    def result(self) -> Activity:
        return Activity(tuple(self._spans), self._seconds, self._since, self._last)

    def add(self, entry: Entry) -> None:
        """Add an event: it adds or changes a span, or it begins or ends a turn.

        Other kinds of events change only the time of the last event.
        """
        self._last = entry.at
        match entry.event:
            case ModelAsked() | ModelAnswered() | ModelFailed() | RequestLogged():
                self._add_model_event(entry, entry.event)
            case NestedCallMade(call):
                tool_step = ToolStep(
                    call, entry.seq, entry.at, self._step_count, made=entry.event
                )
                self._add_span(call.id, tool_step)
            case Judged() | Answered() | Started() | Ended():
                self._add_call_event(entry, entry.event)
            case Reserved() as reserved:
                self._add_span(entry.seq, SideCall(reserved, entry.seq, entry.at))
            case Settled() as settled:
                self._add_settled(entry, settled)
            case ChildBorn() | ChildEnded():
                self._add_child_event(entry, entry.event)
            case TurnStarted():
                self._since = entry.at
            case TurnEnded() if self._since is not None:
                self._seconds += max(0.0, entry.at - self._since)
                self._since = None
            case _:
                return

    def _add_model_event(
        self, entry: Entry, event: ModelAsked | ModelAnswered | ModelFailed | RequestLogged
    ) -> None:
        """Begin or end a model step. A response also adds a tool step for each call in it.

        A logged request belongs to the step that is open, if any.
        """
        match event:
            case ModelAsked():
                self._step_count += 1
                step = ModelStep(
                    self._step_count, entry.seq, entry.at, event, turn=entry.turn
                )
                self._step_index = len(self._spans)
                self._spans.append(step)
            case RequestLogged():
                self._traced_count += 1
                if open_step := self._open_step():
                    traced = (*open_step.traced, self._traced_count)
                    self._spans[self._step_index] = replace(open_step, traced=traced)
            case ModelAnswered() | ModelFailed():
                if open_step := self._open_step():
                    ended_step = replace(open_step, end=event, ended=entry.at)
                    self._spans[self._step_index] = ended_step
                if isinstance(event, ModelAnswered):
                    for call in event.message.calls:
                        tool_step = ToolStep(call, entry.seq, entry.at, self._step_count)
                        self._add_span(call.id, tool_step)

    def _add_settled(self, entry: Entry, end: Settled) -> None:
        """Add an end to the side call or the open model step to which it refers."""
        step = self._open_step()
        if step is None or step.seq != end.reserved:
            self._update_span(end.reserved, end=end, ended=entry.at)
            return
        failed = ModelFailed(end.failed, usage=end.usage, model=end.model, cost=end.cost)
        self._spans[self._step_index] = replace(step, end=failed, ended=entry.at)

    def _open_step(self) -> ModelStep | None:
        """Return the newest model step if it has not ended; otherwise None."""
        step = self._spans[self._step_index] if self._step_index >= 0 else None
        return step if isinstance(step, ModelStep) and step.end is None else None

    def _add_call_event(
        self, entry: Entry, event: Judged | Answered | Started | Ended
    ) -> None:
        """Store the verdict, the answer, the start or the end of a call in its tool step."""
        match event:
            case Judged(id_):
                self._update_span(id_, judged=event)
            case Answered(id_):
                self._update_span(id_, answered=event, answered_by=entry.person or "")
            case Started(id_):
                self._update_span(id_, started=entry.at)
            case Ended(id_):
                self._update_span(id_, end=event, ended=entry.at)

    def _add_child_event(self, entry: Entry, event: ChildBorn | ChildEnded) -> None:
        """Begin or end the span of a subagent."""
        if isinstance(event, ChildBorn):
            self._add_span(event.child, SubagentRun(event, entry.seq, entry.at))
        else:
            self._update_span(event.child, end=event, ended=entry.at)

    def _add_span(self, key: str | int, span: Span) -> None:
        self._indexes[key] = len(self._spans)
        self._spans.append(span)

    def _update_span(self, key: str | int, **changes: Any) -> None:
        """Change fields of the span with this key. If there is none, do nothing."""
        index = self._indexes.get(key)
        if index is not None:
            self._spans[index] = replace(self._spans[index], **changes)
