"""The context of one call of the tool `python`, for the calls that its code makes.

Code that runs again after a crash makes the same calls in the same order. If the journal has
the result of a call, the code gets that result, so nothing is paid for twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Raw, Struct

from refold.engine.world import Record
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended, Entry, Reserved, Settled
from refold.journal.state.conversation import Conversation
from refold.journal.state.fold import fold
from refold.values.messages import ToolCall, ToolResult


class Journal(Record, Protocol):
    """A recorder whose journal can also be read."""

    async def entries(self) -> Sequence[Entry]:
        """Return all entries of the journal, oldest first."""
        ...


class ModelReply(Struct, frozen=True):
    """The answer of a model: its `text` or, for a long answer, the name of a blob in `whole`."""

    text: str
    whole: str = ""

    async def read(self, record: Record) -> str:
        """Return the whole answer. Raises `JournalError` if its blob is missing."""
        return (await record.get(self.whole)).decode() if self.whole else self.text


class NestedCall(Struct, frozen=True):
    """A tool call made by code. `result` is None until the call has ended."""

    event: NestedCallMade
    result: ToolResult | None = None


EMPTY_MAPPING: Mapping[tuple[str, int], Any] = MappingProxyType({})


class CallContext:
    """The context of one call of `python`, with what the journal has about earlier runs of it.

    `before` is the name of the snapshot of all variables before the call, and `parts` are the
    names of the blobs for its large variables.
    """

    def __init__(
        self,
        call_id: str,
        conversation: Conversation,
        answers: Mapping[tuple[str, int], ModelReply] = EMPTY_MAPPING,
        recorded_calls: Mapping[tuple[str, int], NestedCall] = EMPTY_MAPPING,
    ) -> None:
        self.call_id = call_id
        self.before, self.parts = conversation.variables, conversation.variable_parts
        self._answers, self._recorded_calls = answers, recorded_calls
        self._calls_by_key = Counter[str]()
        self._last_number = len(recorded_calls)

    def next_number(self, key: str) -> int:
        """Return how many calls with this `key` were made before, and count one more."""
        number = self._calls_by_key[key]
        self._calls_by_key[key] += 1
        return number

    def answer_from_journal(self, key: str, n: int) -> ModelReply | None:
        """Return the answer that was recorded before a crash, or None if there is none.

        `key` is the key of the question, and `n` the number of equal questions before it.
        """
        return self._answers.get((key, n))

    def next_call(self, key: str, name: str, arguments: Raw) -> NestedCall:
        """Return the next tool call of the code: a new call, or a call recorded before a
        crash.
        """
        n = self.next_number(key)
        if (key, n) in self._recorded_calls:
            return self._recorded_calls[key, n]
        self._last_number += 1
        call = ToolCall(f"{self.call_id}.{self._last_number}", name, arguments)
        return NestedCall(NestedCallMade(call, self.call_id, key, n))


async def call_context(call_id: str, record: Journal) -> CallContext:
    """Return the context of the call `call_id`, which begins now or began before a crash."""
    view = record.view
    call = view.conversation.call(call_id)
    # Entries after `since` were recorded by this process.
    if call is None or not call.started or call.started > record.since:
        return CallContext(call_id, view.conversation)
    entries = await record.entries()
    view_at_start = fold(entry for entry in entries if entry.seq <= call.started)
    later_entries = (entry for entry in entries if entry.seq > call.started)
    answers = {
        (asked.key, asked.n): ModelReply(reply.text, reply.full_blob)
        for asked, reply in successful_leaves(later_entries)
        if asked.call_id == call_id
    }
    return CallContext(
        call_id, view_at_start.conversation, answers, _calls_in_journal(entries, call_id)
    )


def _calls_in_journal(
    entries: Iterable[Entry], within: str
) -> Mapping[tuple[str, int], NestedCall]:
    """Return the tool calls that the code of the call `within` has made, by key and number.

    A call that has ended has its result.
    """
    calls: dict[str, NestedCallMade] = {}
    ends: dict[str, ToolResult] = {}
    for entry in entries:
        match entry.event:
            case NestedCallMade(call, outer) as nested if outer == within:
                calls[call.id] = nested
            case Ended(id_, outcome, text) if id_ in calls:
                ends[id_] = ToolResult(id_, text, failed=outcome != "done")
            case _:
                pass
    return {
        (event.key, event.n): NestedCall(event, ends.get(id_))
        for id_, event in calls.items()
    }


def successful_leaves(entries: Iterable[Entry]) -> list[tuple[Reserved, Settled]]:
    """Return pairs of a question that code has asked and its answer, in the order of answers."""
    unanswered: dict[int, Reserved] = {}
    pairs: list[tuple[Reserved, Settled]] = []
    for entry in entries:
        match entry.event:
            case Reserved(leaf=leaf) as reserved if leaf:
                unanswered[entry.seq] = reserved
            case Settled(reserved=reserved_seq, failed="") as settled if (
                reserved_seq in unanswered
            ):
                pairs.append((unanswered.pop(reserved_seq), settled))
            case _:
                pass
    return pairs
