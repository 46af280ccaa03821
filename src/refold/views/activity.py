"""What a session did, in order: model steps, tool calls, side calls, subagents. Pure.

It is computed from all entries, because the view drops what has ended. A span without an
end is running, or was running when its process died: `session_tree.state` decides.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    """A call of the model for the conversation, and its response. `number` counts from 1."""

    number: int
    seq: int
    at: float
    asked: ModelAsked
    turn: int = 0
    end: ModelAnswered | ModelFailed | None = None
    ended: float | None = None
    traced: tuple[int, ...] = ()  # which of the calls over the wire, from 1

    @property
    def id(self) -> str:
        return f"step-{self.number}"


class ToolStep(Struct, frozen=True):
    """A tool call, made by the model in its step `step`, or by the code of another call."""

    call: ToolCall
    seq: int
    at: float
    step: int
    made: NestedCallMade | None = None
    judged: Judged | None = None
    answered: Answered | None = None
    answered_by: str = ""  # which person; "": one without a name
    started: float | None = None
    end: Ended | None = None
    ended: float | None = None

    @property
    def id(self) -> str:
        return self.call.id


class SideCall(Struct, frozen=True):
    """A model call outside the conversation: a leaf, a summary, a search for what to remember."""

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
    """A subagent was started, and perhaps has ended."""

    born: ChildBorn
    seq: int
    at: float
    end: ChildEnded | None = None
    ended: float | None = None

    @property
    def id(self) -> str:
        return self.born.child


Span: TypeAlias = ModelStep | ToolStep | SideCall | SubagentRun
SpanOutcome: TypeAlias = Literal["", "done", "failed"]  # "": it has no end yet


class Activity(Struct, frozen=True):
    """`seconds` is the duration of all ended turns, `since` when the open turn began."""

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
        return tuple(e for e in self.spans if isinstance(e, SideCall) and e.is_leaf)

    def find_span(self, name: str) -> Span | None:
        """The span with this id, or the newest if a fork used the id again."""
        return next((span for span in reversed(self.spans) if span.id == name), None)


class LeafCounts(Struct, frozen=True):
    done: int = 0
    failed: int = 0
    open: int = 0
    remembered: int = 0  # of `done`, those answered from the cache

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
    leaves = activity.leaves
    fates = [side_call_outcome(leaf) for leaf in leaves]
    remembered = sum(1 for leaf in leaves if leaf.end is not None and leaf.end.cached)
    return LeafCounts(
        fates.count("done"), fates.count("failed"), fates.count(""), remembered
    )


def side_call_outcome(side_call: SideCall) -> SpanOutcome:
    if side_call.end is None:
        return ""
    return "failed" if side_call.end.failed else "done"


def spent_by(span: Span) -> Spent:
    """The usage of a span: none for a tool call, the whole usage for a subagent."""
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
    fold = ActivityFold()
    for entry in entries:
        fold.add(entry)
    return fold.result()


class ActivityFold:
    """Collects spans from entries, also from those of a session that grows."""

    def __init__(self) -> None:
        self._every: list[Span] = []
        self._at = dict[str | int, int]()  # indexes of calls, side calls and children
        self._step, self._traced = -1, 0
        self._steps = 0
        self._seconds, self._since, self._last = 0.0, None, 0.0

    @property
    def spans(self) -> Sequence[Span]:
        """The spans so far, in the order of their first entries."""
        return self._every

    def result(self) -> Activity:
        return Activity(tuple(self._every), self._seconds, self._since, self._last)

    def add(self, entry: Entry) -> None:
        self._last = entry.at
        match entry.event:
            case ModelAsked() | ModelAnswered() | ModelFailed() | RequestLogged():
                self._add_model_event(entry, entry.event)
            case NestedCallMade(call):
                tool_step = ToolStep(
                    call, entry.seq, entry.at, self._steps, made=entry.event
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
        match event:
            case ModelAsked():
                self._steps += 1
                step = ModelStep(self._steps, entry.seq, entry.at, event, turn=entry.turn)
                self._step = len(self._every)
                self._every.append(step)
            case RequestLogged():
                self._traced += 1
                for step in self._open_step():
                    traced = (*step.traced, self._traced)
                    self._every[self._step] = replace(step, traced=traced)
            case ModelAnswered() | ModelFailed():
                for step in self._open_step():
                    self._every[self._step] = replace(step, end=event, ended=entry.at)
                if isinstance(event, ModelAnswered):
                    for call in event.message.calls:
                        tool_step = ToolStep(call, entry.seq, entry.at, self._steps)
                        self._add_span(call.id, tool_step)

    def _add_settled(self, entry: Entry, end: Settled) -> None:
        step = next((s for s in self._open_step() if s.seq == end.reserved), None)
        if step is None:
            self._update_span(end.reserved, end=end, ended=entry.at)
            return
        failed = ModelFailed(end.failed, usage=end.usage, model=end.model, cost=end.cost)
        self._every[self._step] = replace(step, end=failed, ended=entry.at)

    def _open_step(self) -> Iterator[ModelStep]:
        step = self._every[self._step] if self._step >= 0 else None
        if isinstance(step, ModelStep) and step.end is None:
            yield step

    def _add_call_event(
        self, entry: Entry, event: Judged | Answered | Started | Ended
    ) -> None:
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
        if isinstance(event, ChildBorn):
            self._add_span(event.child, SubagentRun(event, entry.seq, entry.at))
        else:
            self._update_span(event.child, end=event, ended=entry.at)

    def _add_span(self, key: str | int, span: Span) -> None:
        self._at[key] = len(self._every)
        self._every.append(span)

    def _update_span(self, key: str | int, **changes: Any) -> None:
        index = self._at.get(key)
        if index is not None:
            self._every[index] = replace(self._every[index], **changes)
