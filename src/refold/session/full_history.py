"""Reads the full history of a session from its journal, including rewound parts.

Implements `tools.session_history.SessionHistory`. The journal is read again for each call,
because calls are rare.
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
        """Return all texts of the session as hits, oldest first."""
        tool_names = dict[str, str]()
        hits = list[SearchHit]()
        for entry in await self._record.entries():
            hits += _hits_of(entry, tool_names)
        return hits


def _hits_of(entry: Entry, tool_names: dict[str, str]) -> Iterator[SearchHit]:
    """Yield the texts of an event, each as a hit.

    `tool_names` has the tool of each call so far, by call id; new calls are added.
    """
    match entry.event:
        case Said(words, sender, outside=outside):
            yield SearchHit(entry.seq, sender, words, outside=outside)
        case ModelAnswered(message):
            if message.text.strip():
                yield SearchHit(entry.seq, "assistant", message.text)
            for call in message.calls:
                tool_names[call.id] = call.name
                text = bytes(call.arguments).decode(errors="replace")
                yield SearchHit(entry.seq, f"call of {call.name}", text, call.id)
        case Ended(call_id, control=PlanReady(_, plan)):
            yield SearchHit(entry.seq, "the plan", plan, call_id)
        case Ended(call_id, outcome, text, outside=outside):
            name = tool_names.get(call_id, "a call")
            outcome_text = "" if outcome == "done" else f", {outcome}"
            yield SearchHit(
                entry.seq, f"result of {name}{outcome_text}", text, call_id, outside=outside
            )
        case Compacted(summary=summary) if summary:
            yield SearchHit(entry.seq, "summary", summary)
        # A plan is listed under its own event number.
        case PlanAnswered(plan, text=text) if text:
            yield SearchHit(plan, "the plan as the person edited it", text)
        case _:
            return
