"""Sessions in a list: a line or a document for each, search results, and a picker. Pure.

The catalogue finds the sessions. In the picker, typing narrows the list: each word must occur
in the name, title, tags or id, or in a message (which a search has to find first). The terminal
reads the keys and draws.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.journal.catalogue.session_card import ENDS, FOUND, Card, Hit
from refold.views.escape import on_one_line
from refold.views.styled import Line
from refold.views.wrap import cells, cut

Search = Callable[[str], frozenset[str]]  # the ids of sessions with these words

_OPEN = "open"
_TITLE = 20  # cells of a title, at least
_ROWS = 12  # at most, however high the screen


def card_line(card: Card, room: int, *, everywhere: bool) -> str:
    """One line: id, time, status, name and title, whether it is a fork, tags."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(card.changed))
    where = f"  {on_one_line(card.about.directory)}" if everywhere else ""
    fork = " (fork)" if card.about.forked[0] else ""
    tags = fork + "".join(f" #{on_one_line(tag)}" for tag in card.about.tags)
    start = f"{card.id}  {when}  {state(card):<12} "
    if room - len(start) - cells(tags) < _TITLE:  # the time has no room
        start = f"{card.id}  {state(card):<12} "
    left = max(room - len(start) - cells(tags) - cells(where), _TITLE)
    return f"{start}{cut(display_name(card), left)}{tags}{where}".rstrip()


def display_name(card: Card) -> str:
    """Name and title."""
    name, title = on_one_line(card.about.name), on_one_line(card.about.title)
    return f"{name}: {title}" if name and title else name or title


def state(card: Card) -> str:
    if card.damage:
        return "damaged"
    return _OPEN if card.open or not card.outcome else card.outcome


def card_document(card: Card) -> Mapping[str, object]:
    about = card.about
    source, seq = about.forked
    return {
        "id": card.id, "parent": card.parent, "changed": card.changed,
        "began": about.started_at, "title": about.title, "name": about.name,
        "tags": about.tags, "directory": about.directory, "outcome": card.outcome,
        "open": card.open, "events": card.events, "damage": card.damage,
        "usage": msgspec.to_builtins(card.spent.usage), "cost": card.spent.cost,
        "children": len(card.children), "cost_below": card.below.cost,
        "model": about.model or card.model, "agent": about.agent or card.agent,
        "forked": {"source": source, "event": seq} if source else None,
    }  # fmt: skip


def hit_lines(hits: Sequence[Hit], room: int, *, bold: bool) -> Iterator[str]:
    """Search results, grouped by session, the best session first."""
    for found in by_session(hits):
        yield card_line(found[0].card, room, everywhere=False)
        for hit in found:
            start = f"  {hit.seq:>6}  {on_one_line(hit.who):<6} "
            yield start + _snippet(hit.snippet, room - len(start), bold=bold)


def by_session(hits: Iterable[Hit]) -> Sequence[Sequence[Hit]]:
    """Groups in the order of their first result."""
    by = dict[str, list[Hit]]()
    for hit in hits:
        by.setdefault(hit.card.id, []).append(hit)
    return list(by.values())


def hit_document(hit: Hit) -> Mapping[str, object]:
    about = hit.card.about
    text = hit.snippet.replace(FOUND, "").replace(ENDS, "")
    return {
        "session": hit.card.id, "event": hit.seq, "who": hit.who, "text": text,
        "marked": [list(span) for span in _spans(hit.snippet)], "title": about.title,
        "name": about.name, "directory": about.directory, "changed": hit.card.changed,
    }  # fmt: skip


def _snippet(snippet: str, room: int, *, bold: bool) -> str:
    """On one line that fits `room`; matches are bold."""
    pieces, left = list[str](), room
    marked = False
    for piece in _split(" ".join(snippet.split())):
        if piece in (FOUND, ENDS):
            marked = piece == FOUND
            continue
        shown = cut(on_one_line(piece), left)
        left -= cells(shown)
        pieces.append(f"\x1b[1m{shown}\x1b[0m" if bold and marked and shown else shown)
        if left <= 0:
            break
    return "".join(pieces)


def _spans(snippet: str) -> Iterator[tuple[int, int]]:
    """Start and end of each match."""
    at = first = 0
    for piece in _split(snippet):
        if piece == FOUND:
            first = at
        elif piece == ENDS:
            yield first, at
        else:
            at += len(piece)


def _split(snippet: str) -> Iterator[str]:
    for n, part in enumerate(snippet.split(FOUND)):
        if n:
            yield FOUND
        inner, end, rest = part.partition(ENDS)
        yield inner
        if end:
            yield ENDS
            yield rest


class SessionPicker(Struct, frozen=True):
    """`cards`: the newest first. `matches`: ids of sessions whose messages contain `query`."""

    cards: tuple[Card, ...]
    query: str = ""
    at: int = 0
    matches: frozenset[str] = frozenset()

    @property
    def shown(self) -> tuple[Card, ...]:
        """Sessions that match the query by name first, then those that match by their messages."""
        words = self.query.casefold().split()
        if not words:
            return self.cards
        named = [card for card in self.cards if _fits(card, words)]
        ids = {card.id for card in named}
        said = (c for c in self.cards if c.id in self.matches and c.id not in ids)
        return (*named, *said)

    @property
    def chosen(self) -> Card | None:
        shown = self.shown
        return shown[min(self.at, len(shown) - 1)] if shown else None


def with_query(picking: SessionPicker, text: str) -> SessionPicker:
    """Another query: select the first result."""
    if text == picking.query:
        return picking
    return replace(picking, query=text, at=0, matches=frozenset())


def with_matches(picking: SessionPicker, text: str, ids: frozenset[str]) -> SessionPicker:
    """Add the results of a search for `text`, unless the query has changed."""
    if text != picking.query:
        return picking
    before = picking.chosen
    found = replace(picking, matches=ids)
    shown = found.shown
    return replace(found, at=shown.index(before) if before in shown else 0)


def moved(picking: SessionPicker, by: int) -> SessionPicker:
    """Move the selection by so many, within the list."""
    last = len(picking.shown) - 1
    return replace(picking, at=max(0, min(picking.at + by, last)))


def picker_rows(picking: SessionPicker, room: int, height: int, now: float) -> list[Line]:
    """The visible part of the list, and how many there are."""
    shown, many = picking.shown, max(min(height, _ROWS), 1)
    at = min(picking.at, len(shown) - 1)
    first = max(0, min(at - many // 2, len(shown) - many))
    found = [
        _row(card, room, now, here=first + n == at)
        for n, card in enumerate(shown[first : first + many])
    ]
    if not shown:
        return [(("dim", "  nothing fits"),)]
    if len(shown) > many:
        found.append((("dim", f"  {at + 1} of {len(shown)}"),))
    return found


def numbered_rows(cards: Sequence[Card], room: int, now: float) -> list[Line]:
    """The list with numbers, for a terminal without cursor control."""
    wide = len(str(len(cards)))
    return [
        (("plain", f"{n:>{wide}}  "), *_words(card, room - wide - 2, now))
        for n, card in enumerate(cards, start=1)
    ]


def _fits(card: Card, words: Sequence[str]) -> bool:
    about = card.about
    text = " ".join((about.name, about.title, card.id, *about.tags)).casefold()
    return all(word in text for word in words)


def _row(card: Card, room: int, now: float, *, here: bool) -> Line:
    mark = ("accent", "› ") if here else ("plain", "  ")
    words = _words(card, room - 2, now)
    return (mark, *((("strong", text) for _, text in words) if here else words))


def _words(card: Card, room: int, now: float) -> Line:
    when = f"{_ago(now - card.changed):>6}  "
    came_to = state(card)
    tail = "" if came_to == "answered" else f"  {came_to}"
    tags = "".join(f" #{on_one_line(tag)}" for tag in card.about.tags)
    title = display_name(card) or card.id
    left = max(room - len(when) - cells(tags) - len(tail), 10)
    return (("dim", when), ("plain", cut(title, left)), ("accent", tags), ("dim", tail))


def _ago(seconds: float) -> str:
    for unit, many in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= many:
            return f"{int(seconds // many)} {unit}"
    return "now"
