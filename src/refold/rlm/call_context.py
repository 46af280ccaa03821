"""The context of one call of the tool `python`, for the calls that its code makes.

Code that runs again after a crash makes the same calls in the same order. A call that has a
result in the journal gets that result, so nothing is paid for twice.
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
    """A recorder whose entries can be read back."""

    async def entries(self) -> Sequence[Entry]:
        """All entries of the journal, oldest first."""
        ...


class ModelReply(Struct, frozen=True):
    """The answer of a model, or the name of the blob that contains it."""

    text: str
    whole: str = ""

    async def read(self, record: Record) -> str:
        """Read the answer. Raises `JournalError` if the blob is missing."""
        return (await record.get(self.whole)).decode() if self.whole else self.text


class NestedCall(Struct, frozen=True):
    """A tool call made by code. `result` is None until it ends."""

    event: NestedCallMade
    result: ToolResult | None = None


EMPTY_MAPPING: Mapping[tuple[str, int], Any] = MappingProxyType({})


class CallContext:
    """`before` is the snapshot of variables before the call, `parts` are its parts."""

    def __init__(
        self,
        call_id: str,
        conversation: Conversation,
        answers: Mapping[tuple[str, int], ModelReply] = EMPTY_MAPPING,
        recorded_calls: Mapping[tuple[str, int], NestedCall] = EMPTY_MAPPING,
    ) -> None:
        self.call_id, self.before, self.parts = (
            call_id,
            conversation.variables,
            conversation.variable_parts,
        )
        self._answers, self._made = answers, recorded_calls
        self._many = Counter[str]()
        self._number = len(recorded_calls)

    def next_number(self, key: str) -> int:
        """How many calls with this `key` came before. The first gets 0."""
        self._many[key] += 1
        return self._many[key] - 1

    def answer_from_journal(self, key: str, n: int) -> ModelReply | None:
        """The model's answer that was recorded before a crash, or None."""
        return self._answers.get((key, n))

    def next_call(self, key: str, name: str, arguments: Raw) -> NestedCall:
        """The next tool call of the code: a new one, or one recorded before a crash."""
        n = self.next_number(key)
        if (key, n) in self._made:
            return self._made[key, n]
        self._number += 1
        call = ToolCall(f"{self.call_id}.{self._number}", name, arguments)
        return NestedCall(NestedCallMade(call, self.call_id, key, n))


async def call_context(call_id: str, record: Journal) -> CallContext:
    """The context of a call that starts now, or that a crashed process had started."""
    view = record.view
    call = view.conversation.call(call_id)
    if call is None or not call.started or call.started > record.since:
        return CallContext(call_id, view.conversation)
    entries = await record.entries()
    began = fold(entry for entry in entries if entry.seq <= call.started)
    since = (entry for entry in entries if entry.seq > call.started)
    answers = {
        (asked.key, asked.n): ModelReply(reply.text, reply.full_blob)
        for asked, reply in successful_leaves(since)
        if asked.call_id == call_id
    }
    return CallContext(
        call_id, began.conversation, answers, _calls_in_journal(entries, call_id)
    )


def _calls_in_journal(
    entries: Iterable[Entry], within: str
) -> Mapping[tuple[str, int], NestedCall]:
    """The calls that the code of this call has made, each with its result, if it has one."""
    calls: dict[str, NestedCallMade] = {}
    ends: dict[str, ToolResult] = {}
    for entry in entries:
        match entry.event:
            case NestedCallMade(call, outer) as nested if outer == within:
                calls[call.id] = nested
            case Ended(id_, outcome, text) if id_ in calls:
                ends[id_] = ToolResult(id_, text, outcome != "done")
            case _:
                pass
    return {(m.key, m.n): NestedCall(m, ends.get(id_)) for id_, m in calls.items()}


def successful_leaves(entries: Iterable[Entry]) -> list[tuple[Reserved, Settled]]:
    """The questions of code that were answered successfully, in the order of the answers."""
    asked: dict[int, Reserved] = {}
    pairs: list[tuple[Reserved, Settled]] = []
    for entry in entries:
        match entry.event:
            case Reserved(leaf=leaf) as reserved if leaf:
                asked[entry.seq] = reserved
            case Settled(reserved=reserved_seq, failed="") as settled if (
                reserved_seq in asked
            ):
                pairs.append((asked.pop(reserved_seq), settled))
            case _:
                pass
    return pairs
