"""The full history of a session, read from its journal, rewound parts included.

Implements `tools.session_history.Past`. The journal is read each time, because this is
rare.
"""

from collections.abc import Iterator, Sequence

from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Entry,
    ModelAnswered,
    PlanAnswered,
    Said,
)
from refold.session.recorder import Recorder
from refold.values.control import PlanReady
from refold.values.messages import SearchHit


class History:
    def __init__(self, record: Recorder) -> None:
        self._record = record

    async def all_hits(self) -> Sequence[SearchHit]:
        names = dict[str, str]()
        return [t for e in await self._record.entries() for t in _hits_of(e, names)]


def _hits_of(entry: Entry, names: dict[str, str]) -> Iterator[SearchHit]:
    match entry.event:
        case Said(words, sender, outside=outside):
            yield SearchHit(entry.seq, sender, words, outside=outside)
        case ModelAnswered(message):
            if message.text.strip():
                yield SearchHit(entry.seq, "assistant", message.text)
            for call in message.calls:
                names[call.id] = call.name
                text = bytes(call.arguments).decode(errors="replace")
                yield SearchHit(entry.seq, f"call of {call.name}", text, call.id)
        case Ended(call_id, control=PlanReady(_, plan)):
            yield SearchHit(entry.seq, "the plan", plan, call_id)
        case Ended(call_id, outcome, text, outside=outside):
            name = names.get(call_id, "a call")
            outcome_text = "" if outcome == "done" else f", {outcome}"
            yield SearchHit(
                entry.seq, f"result of {name}{outcome_text}", text, call_id, outside
            )
        case Compacted(summary=summary) if summary:
            yield SearchHit(entry.seq, "summary", summary)
        case PlanAnswered(plan, text=text) if text:  # listed at the seq of the plan
            yield SearchHit(plan, "the plan as the person edited it", text)
        case _:
            return
