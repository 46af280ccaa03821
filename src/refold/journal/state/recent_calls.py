"""The latest calls of the running turn, with their results.

The policies in `engine/policies/stuck.py` detect loops in them. They are separate from the
conversation because compaction must not hide a loop. A new message of the user clears the list,
because the message may be the reason for a repeated call.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    ModelAnswered,
    Started,
    TurnStarted,
)
from refold.values.display import Output, Shown
from refold.values.growing import Log
from refold.values.messages import ToolCall

EVENT_KINDS = (TurnStarted, Delivered, ModelAnswered, Started, Ended)
LASTING_KINDS = ()  # a new turn starts without calls

# Number of responses. Up to twice as many are in memory, with their results, so that the list
# is copied only once in 300 responses.
_MAX_GROUPS = 300
_COMMAND_CHARS = 500  # the beginning of a command that is compared

# Parts in which equal failures differ: Python cells are numbered.
_CHANGING_PATTERN = (
    r"\b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds?)\b|\b0x[0-9a-fA-F]{4,}\b"
    r"|\bcell \d+(?=, line \d)"
)


class RecentCall(Struct, frozen=True, dict=True):
    """A call and its result. The values to compare are computed once, on demand."""

    call: ToolCall
    since: float = 0.0  # when it started, in seconds since 1970
    took: float = 0.0  # seconds
    text: str = ""
    failed: bool = False
    silent: bool = True  # it has printed nothing

    @property
    def name(self) -> str:
        return self.call.name

    @cached_property
    def arguments(self) -> str:
        """The arguments as JSON with sorted keys, for comparison."""
        value = self._argument_value
        content = self.call.arguments if value is None else _to_sorted_json(value)
        return bytes(content).decode(errors="replace")

    @cached_property
    def command(self) -> str:
        """The beginning of the command line; "" if the call has no command line."""
        match self._argument_value:
            case {"command": str(line)}:
                return line[:_COMMAND_CHARS]
            case _:
                return ""

    @cached_property
    def result(self) -> str:
        """Return the result; for an error, without the parts in which equal errors differ."""
        return re.sub(_CHANGING_PATTERN, "…", self.text) if self.failed else self.text

    @property
    def error(self) -> str:
        """The error message; "" if the call did not fail, or printed nothing."""
        return "" if self.silent or not self.failed else self.result

    @property
    def _argument_value(self) -> object:
        """Return the decoded arguments; None if they are not valid JSON."""
        try:
            return msgspec.json.decode(self.call.arguments)
        except (msgspec.DecodeError, RecursionError):
            return None


class CallGroup(Struct, frozen=True, dict=True):
    """The calls of one response, at least one."""

    calls: tuple[RecentCall, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset([call.name for call in self.calls])

    @cached_property
    def key(self) -> frozenset[tuple[str, str, str]]:
        """A key that equal groups share. Equal calls within one group count once."""
        return frozenset([(call.name, call.arguments, call.result) for call in self.calls])


class RecentCalls(Struct, frozen=True):
    """The recent calls of a turn.

    `calls` are the calls of the latest response, which may still be open. `earlier` has those
    of the responses before it.
    """

    earlier: Log[CallGroup] = field(default_factory=Log[CallGroup])
    calls: tuple[RecentCall, ...] = ()

    @property
    def newest_first(self) -> Iterator[CallGroup]:
        if self.calls:
            yield CallGroup(self.calls)
        yield from reversed(self.earlier)


def apply(recent: RecentCalls, entry: Entry) -> RecentCalls:
    """Return the recent calls after this entry. A new turn or a delivered message
    empties them.
    """
    match entry.event:
        case Started() | Ended():
            calls = [_apply(call, entry.event, entry.at) for call in recent.calls]
            return RecentCalls(recent.earlier, tuple(calls))
        case ModelAnswered(message) if message.calls:
            calls = [RecentCall(call) for call in message.calls]
            return RecentCalls(_groups_with_last(recent), tuple(calls))
        case TurnStarted() | Delivered():
            return RecentCalls()
        case _:
            return recent


def _groups_with_last(recent: RecentCalls) -> Log[CallGroup]:
    """Return the earlier groups, followed by the calls of the latest response."""
    if not recent.calls:
        return recent.earlier
    groups = recent.earlier.plus(CallGroup(recent.calls))
    if len(groups) < 2 * _MAX_GROUPS:
        return groups
    return Log(groups[-_MAX_GROUPS:])


def _apply(call: RecentCall, event: Started | Ended, time: float) -> RecentCall:
    """Return the call after its start or its end; the same if the event is of another call."""
    if call.call.id != event.call_id:
        return call
    if isinstance(event, Started):
        return replace(call, since=time)
    elapsed = max(0.0, time - call.since) if call.since else 0.0
    failed, silent = _failure(event)
    return replace(call, took=elapsed, text=event.text, failed=failed, silent=silent)


def _failure(end: Ended) -> tuple[bool, bool]:
    """Return whether the call failed, and whether it printed nothing.

    The call of a command counts as failed by its exit code: the tool itself has succeeded.
    """
    output = _output(end.shown)
    if end.outcome == "done" and output is not None:
        return output.code != 0, not output.text.strip()
    return end.outcome == "failed", not end.text.strip()


def _output(parts: Sequence[Shown]) -> Output | None:
    return next((part for part in parts if isinstance(part, Output)), None)


def _to_sorted_json(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
