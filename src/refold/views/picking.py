"""Choosing one of many sessions: what is shown, and what typing and arrows do to it. Pure.

What is typed narrows the list: each word has to be in the name, the title, the tags or the
id, or in what was said (then somebody has searched for it). Keys and drawing are a door's.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.catalogue.card import Card
from refold.views.catalogued import called, state
from refold.views.cells import cells, cut
from refold.views.escape import on_one_line
from refold.views.styled import Line

_ROWS = 12  # at most, however high the screen


class Picking(Struct, frozen=True):
    """`cards` are the newest first. `heard`: the ids of those where `typed` was said."""

    cards: tuple[Card, ...]
    typed: str = ""
    at: int = 0
    heard: frozenset[str] = frozenset()

    @property
    def shown(self) -> tuple[Card, ...]:
        """Those that fit what is typed: by what they are called first, then by their words."""
        words = self.typed.casefold().split()
        if not words:
            return self.cards
        named = [card for card in self.cards if _fits(card, words)]
        ids = {card.id for card in named}
        said = (c for c in self.cards if c.id in self.heard and c.id not in ids)
        return (*named, *said)

    @property
    def chosen(self) -> Card | None:
        shown = self.shown
        return shown[min(self.at, len(shown) - 1)] if shown else None


def typing(picking: Picking, text: str) -> Picking:
    """Something else is typed: from the top again."""
    if text == picking.typed:
        return picking
    return replace(picking, typed=text, at=0, heard=frozenset())


def heard(picking: Picking, text: str, ids: frozenset[str]) -> Picking:
    """What a search for `text` found, unless something else is typed by now."""
    if text != picking.typed:
        return picking
    before = picking.chosen
    found = replace(picking, heard=ids)
    shown = found.shown
    return replace(found, at=shown.index(before) if before in shown else 0)


def moved(picking: Picking, by: int) -> Picking:
    """Up or down by so many, and not beyond the ends."""
    last = len(picking.shown) - 1
    return replace(picking, at=max(0, min(picking.at + by, last)))


def rows(picking: Picking, room: int, height: int, now: float) -> list[Line]:
    """The part of the list that is on the screen, and how much there is beside it."""
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


def numbered(cards: Sequence[Card], room: int, now: float) -> list[Line]:
    """The same for a screen on which nothing moves: each by its number."""
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
    title = called(card) or card.id
    left = max(room - len(when) - cells(tags) - len(tail), 10)
    return (("dim", when), ("plain", cut(title, left)), ("accent", tags), ("dim", tail))


def _ago(seconds: float) -> str:
    for unit, many in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= many:
            return f"{int(seconds // many)} {unit}"
    return "now"
