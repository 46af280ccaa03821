"""One call of the tool `python`, as what its code calls needs to know it.

Code that runs again after a crash asks the same again, in the same order. What stands in
the journal by then is its answer; so nothing is paid for twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Raw, Struct

from refold.engine.world import Record
from refold.journal.below import CallMade
from refold.journal.events import Ended, Entry, Reserved, Settled
from refold.journal.fold import fold
from refold.journal.talk import Talk
from refold.values.messages import ToolCall, ToolResult


class Journal(Record, Protocol):
    async def entries(self) -> Sequence[Entry]:
        """All that stands in the journal by now, oldest first."""
        ...


class ModelReply(Struct, frozen=True):
    """What a model answered, or the blob that holds it."""

    text: str
    whole: str = ""

    async def read(self, record: Record) -> str:
        """Raises `JournalError` where it is not there any more."""
        return (await record.get(self.whole)).decode() if self.whole else self.text


class Made(Struct, frozen=True):
    """A call of a tool that code made. `result` None: it has not ended."""

    event: CallMade
    result: ToolResult | None = None


NOTHING: Mapping[tuple[str, int], Any] = MappingProxyType({})


class Within:
    """`before` is the snapshot of the variables that the code began with, in `parts`."""

    def __init__(
        self,
        call_id: str,
        talk: Talk,
        answers: Mapping[tuple[str, int], ModelReply] = NOTHING,
        made: Mapping[tuple[str, int], Made] = NOTHING,
    ) -> None:
        self.call_id, self.before, self.parts = call_id, talk.variables, talk.parts
        self._answers, self._made = answers, made
        self._many = Counter[str]()
        self._number = len(made)

    def n(self, key: str) -> int:
        """How often the same was asked for before; and one more from now on."""
        self._many[key] += 1
        return self._many[key] - 1

    def answer(self, key: str, n: int) -> ModelReply | None:
        """What a model said to that before a crash."""
        return self._answers.get((key, n))

    def made(self, key: str, name: str, arguments: Raw) -> Made:
        """The call of a tool that code wants now: a new one, or that of before a crash."""
        n = self.n(key)
        if (key, n) in self._made:
            return self._made[key, n]
        self._number += 1
        call = ToolCall(f"{self.call_id}.{self._number}", name, arguments)
        return Made(CallMade(call, self.call_id, key, n))


async def within(call_id: str, record: Journal) -> Within:
    """The call as it stands: begun just now, or by a process that died."""
    view = record.view
    found = view.talk.call(call_id)
    if found is None or not found.started or found.started > record.since:
        return Within(call_id, view.talk)
    entries = await record.entries()
    began = fold(entry for entry in entries if entry.seq <= found.started)
    since = (entry for entry in entries if entry.seq > found.started)
    answers = {
        (asked.key, asked.n): ModelReply(told.text, told.whole)
        for asked, told in answered(since)
        if asked.call_id == call_id
    }
    return Within(call_id, began.talk, answers, _made(entries, call_id))


def _made(entries: Iterable[Entry], within: str) -> Mapping[tuple[str, int], Made]:
    """The calls that the code of this call has made, each with what it came to, if it did."""
    made: dict[str, CallMade] = {}
    ends: dict[str, ToolResult] = {}
    for entry in entries:
        match entry.event:
            case CallMade(call, outer) as found if outer == within:
                made[call.id] = found
            case Ended(id_, outcome, text) if id_ in made:
                ends[id_] = ToolResult(id_, text, outcome != "done")
            case _:
                pass
    return {(m.key, m.n): Made(m, ends.get(id_)) for id_, m in made.items()}


def answered(entries: Iterable[Entry]) -> list[tuple[Reserved, Settled]]:
    """The questions of code that were answered well, in the order of the answers."""
    asked: dict[int, Reserved] = {}
    found: list[tuple[Reserved, Settled]] = []
    for entry in entries:
        match entry.event:
            case Reserved(leaf=leaf) as reserved if leaf:
                asked[entry.seq] = reserved
            case Settled(reserved=at, failed="") as settled if at in asked:
                found.append((asked.pop(at), settled))
            case _:
                pass
    return found
