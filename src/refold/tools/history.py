"""What was said and done in this session before, also where the talk was made shorter.

The journal is read by whoever stands behind `Past`; here is what a model may ask of it.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol

from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.values.shown import Note
from refold.values.told import Told
from refold.values.tools import Effect

_AROUND = 160  # characters of a hit on each side
_PAGE = 12_000  # characters of one event


class Past(Protocol):
    async def told(self) -> Sequence[Told]:
        """All that this session has said and done, oldest first."""
        ...


@tool(Effect.LOOK)
async def history_search(
    query: Annotated[str, Meta(description="words that all have to occur")] = "",
    event: Annotated[int, Meta(description="show this event whole")] = 0,
    call: Annotated[str, Meta(description="show what this call came to")] = "",
    offset: Annotated[int, Meta(ge=0, description="characters to skip")] = 0,
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
    *,
    history: Past,
) -> Reply:
    """Find what was said, called or answered earlier in this session, newest first, also what is no longer in the talk; or show one event or call whole."""
    told = await history.told()
    if event or call:
        found = [t for t in told if (t.seq == event if event else t.call == call)]
        return _whole(found, f"event {event}" if event else f"call {call!r}", offset)
    words = query.lower().split()
    if not words:
        raise ToolFailed("Give a query, an event or a call.")
    hits = _hits(told, query.lower().strip(), words)
    if not hits:
        return Reply(f"Nothing in this session holds {query!r}. Try fewer or other words.")
    lines = [
        f"[{t.seq}] {_name(t)}: {_excerpt(t.text, query, words[0])}" for t in hits[:limit]
    ]
    more = f"\n{len(hits) - limit} more hits." if len(hits) > limit else ""
    text = "\n".join(lines) + more
    return Reply(text, (Note(f"{len(hits)} places in this session"),))


def _hits(told: Sequence[Told], phrase: str, words: Sequence[str]) -> Sequence[Told]:
    """Newest first, and before all those that hold the very phrase."""
    texts = [(t, t.text.lower()) for t in reversed(told)]
    found = [(phrase not in text, t) for t, text in texts if all(w in text for w in words)]
    return [t for _, t in sorted(found, key=lambda pair: pair[0])]


def _whole(found: Sequence[Told], name: str, offset: int) -> Reply:
    if not found:
        raise ToolFailed(f"There is no {name} with anything to read in this session.")
    text = "\n\n".join(f"[{t.seq}] {_name(t)}:\n{t.text}" for t in found)
    page = text[offset : offset + _PAGE]
    left = len(text) - offset - len(page)
    more = (
        f"\n[… {left:,} characters more: offset {offset + len(page)} …]" if left > 0 else ""
    )
    return Reply(page + more, (Note(f"read {name} of this session"),))


def _name(told: Told) -> str:
    return f"{told.what} ({told.call})" if told.call else told.what


def _excerpt(text: str, phrase: str, word: str) -> str:
    whole = text.lower()
    found = whole.find(phrase.lower().strip())
    at = found if found >= 0 else max(0, whole.find(word))
    start, end = max(0, at - _AROUND), at + len(word) + _AROUND
    piece = " ".join(text[start:end].split())
    return f"{'… ' if start else ''}{piece}{' …' if end < len(text) else ''}"
