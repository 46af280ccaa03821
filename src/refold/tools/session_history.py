"""The tool `history_search`: searches earlier messages and calls of this session.

It also finds messages that were removed by compaction. The port `SessionHistory` reads the
journal.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol

from anyio import to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.messages import SearchHit
from refold.values.tools import Effect

_EXCERPT_CHARS = 160  # on each side of a match
_MAX_PAGE_CHARS = 12_000  # for one event
_MAX_QUERY_CHARS = 500
_OWN_SUFFIX = " of history_search"


class SessionHistory(Protocol):
    async def all_hits(self) -> Sequence[SearchHit]:
        """Return all messages and calls of this session, oldest first."""
        ...


@tool(Effect.LOOK)
async def history_search(
    query: Annotated[str, Meta(description="words that all have to occur")] = "",
    event: Annotated[int, Meta(description="show this event whole")] = 0,
    call: Annotated[str, Meta(description="show what this call came to")] = "",
    offset: Annotated[int, Meta(ge=0, description="characters to skip")] = 0,
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
    *,
    history: SessionHistory,
) -> Reply:
    """Find messages, calls and results of this session, newest first, also what is no
    longer in the conversation; or show one event or call whole."""
    all_hits = await history.all_hits()
    if event:
        matches = [hit for hit in all_hits if hit.seq == event]
        return _page_of_hits(matches, f"event {event}", offset)
    if call:
        matches = [hit for hit in all_hits if hit.call == call]
        return _page_of_hits(matches, f"call {call!r}", offset)
    phrase = " ".join(query.casefold().split())
    if not phrase:
        raise ToolFailed("Give a query, an event or a call.")
    if len(phrase) > _MAX_QUERY_CHARS:
        raise ToolFailed(
            f"A query has {_MAX_QUERY_CHARS} characters at most: give a few words."
        )
    hits = await to_thread.run_sync(_hits, all_hits, phrase)
    if not hits:
        return Reply(f"Nothing in this session holds {query!r}. Try fewer or other words.")
    shown, left = hits[:limit], len(hits) - limit
    lines = [f"[{hit.seq}] {_name(hit)}: {_excerpt(hit.text, phrase)}" for hit in shown]
    text = "\n".join(lines) + (f"\n{left} more hits." if left > 0 else "")
    note = Note(f"{len(hits)} places in this session")
    return Reply(text, (note,), outside=any(hit.outside for hit in shown))


def _hits(all_hits: Sequence[SearchHit], phrase: str) -> Sequence[SearchHit]:
    """Return the hits with all words of `phrase`: first those with the exact phrase.

    In each group, the newest come first. Calls of this tool and their results are left out,
    because they contain every query.
    """
    words = phrase.split()
    with_phrase, with_words = list[SearchHit](), list[SearchHit]()
    for hit in reversed(all_hits):
        text = hit.text.casefold()
        if hit.what.endswith(_OWN_SUFFIX):
            continue
        if phrase in text:
            with_phrase.append(hit)
        elif all(word in text for word in words):
            with_words.append(hit)
    return [*with_phrase, *with_words]


def _page_of_hits(hits: Sequence[SearchHit], name: str, offset: int) -> Reply:
    """Return the texts of these hits from the character `offset` on, at most one page."""
    if not hits:
        raise ToolFailed(f"There is no {name} with anything to read in this session.")
    text = "\n\n".join(f"[{hit.seq}] {_name(hit)}:\n{hit.text}" for hit in hits)
    page = text[offset : offset + _MAX_PAGE_CHARS]
    if not page:
        raise ToolFailed(
            f"{name} has {len(text):,} characters: there are none at {offset:,}."
        )
    left = len(text) - offset - len(page)
    hint = (
        f"\n[… {left:,} characters more: offset {offset + len(page)} …]" if left > 0 else ""
    )
    note = Note(f"read {name} of this session")
    return Reply(page + hint, (note,), outside=any(hit.outside for hit in hits))


def _name(hit: SearchHit) -> str:
    return f"{hit.what} ({hit.call})" if hit.call else hit.what


def _excerpt(text: str, phrase: str) -> str:
    """Return the text around `phrase`, or else around its first word."""
    folded = text.casefold()
    first_word = phrase.split()[0]
    position = folded.find(phrase)
    if position < 0:
        position = max(0, folded.find(first_word))
    if len(folded) != len(text):
        # Some letters, such as "ß", become two, which moves what comes after them.
        position = _offset_before_folding(text, position)
    start = max(0, position - _EXCERPT_CHARS)
    end = position + len(first_word) + _EXCERPT_CHARS
    excerpt = " ".join(text[start:end].split())
    before = "… " if start else ""
    after = " …" if end < len(text) else ""
    return f"{before}{excerpt}{after}"


def _offset_before_folding(text: str, index: int) -> int:
    """Return the offset in `text` of the character at `index` of the case-folded text."""
    length = 0
    for n, character in enumerate(text):
        length += len(character.casefold())  # "ß" becomes two characters
        if length > index:
            return n
    return len(text)
