"""One call of the tool `python`, as what its code calls needs to know it.

Code that runs again after a crash asks the same again, in the same order. What stands in
the journal by then is its answer; so nothing is paid for twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from refold.engine.world import Record
from refold.journal.events import Entry, Reserved, Settled
from refold.journal.fold import fold


class Journal(Record, Protocol):
    async def entries(self) -> Sequence[Entry]:
        """All that stands in the journal by now, oldest first."""
        ...


class Told(Struct, frozen=True):
    """What a model answered, or the blob that holds it."""

    text: str
    whole: str = ""

    async def read(self, record: Record) -> str:
        """Raises `JournalError` where it is not there any more."""
        return (await record.get(self.whole)).decode() if self.whole else self.text


class Within:
    """`before` is the snapshot of the variables that the code began with."""

    def __init__(
        self, call_id: str, before: str, answers: dict[tuple[str, int], Told] | None = None
    ) -> None:
        self.call_id, self.before = call_id, before
        self._answers = answers or {}
        self._many = Counter[str]()

    def n(self, key: str) -> int:
        """How often the same was asked for before; and one more from now on."""
        self._many[key] += 1
        return self._many[key] - 1

    def answer(self, key: str, n: int) -> Told | None:
        """What a model said to that before a crash."""
        return self._answers.get((key, n))


async def within(call_id: str, record: Journal) -> Within:
    """The call as it stands: begun just now, or by a process that died."""
    view = record.view
    found = view.talk.call(call_id)
    if found is None or not found.started or found.started > record.since:
        return Within(call_id, view.talk.variables)
    entries = await record.entries()
    began = fold(entry for entry in entries if entry.seq <= found.started)
    since = (entry for entry in entries if entry.seq > found.started)
    answers = {
        (asked.key, asked.n): Told(told.text, told.whole)
        for asked, told in answered(since)
        if asked.call_id == call_id
    }
    return Within(call_id, began.talk.variables, answers)


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
