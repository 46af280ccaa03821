"""Which sessions a list has, as a value, and the choice of its cards from all. Pure.

A catalogue in a database makes the same choice in a query, by the `Shelf` of each card.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from refold.journal.catalogue.session_card import Card, without_old_runs, works_in
from refold.values.session_tags import ARCHIVED_TAG, PINNED_TAG

ListPosition: TypeAlias = tuple[float, str]  # when a session was changed, and its id


class CardFilter(Struct, frozen=True):
    """The sessions of a list: those that have all that is given here.

    A list has sessions with a message or a label, and of the runs of a
    schedule only the newest; with `everything`, it has all. Subagents are in none.
    """

    directory: str = ""  # where it works; links are resolved
    tags: frozenset[str] = frozenset()
    pinned: bool | None = None
    archived: bool | None = None
    open: bool = False  # a turn is running, or was when the session was left
    everything: bool = False


class Shelf(IntEnum):
    """The group of a card. Each list has the cards of some groups."""

    PLAIN = 0
    PINNED = 1
    ARCHIVED = 2
    PINNED_AND_ARCHIVED = 3
    SILENT = 4  # it has neither a message nor a label
    RUN = 5  # the newest of its schedule, without a name, a tag or a second message
    OLD_RUN = 6


def select_cards(
    cards: Sequence[Card], wanted: CardFilter, after: ListPosition | None = None
) -> Iterator[Card]:
    """Yield the cards of a list. `cards` are those of all sessions, the newest first."""
    shelves = shelves_of(wanted)
    works_here = works_in(wanted.directory) if wanted.directory else None
    matches: Sequence[Card] = [
        card
        for card in cards
        if shelf_of(card) in shelves
        and (card.open or not wanted.open)
        and wanted.tags <= set(card.about.tags)
        and (works_here is None or works_here(card))
    ]
    if not wanted.everything:
        matches = without_old_runs(matches)
    for card in matches:
        if after is None or position_of(card) < after:
            yield card


def shelves_of(wanted: CardFilter) -> frozenset[Shelf]:
    """The groups whose cards a list may have."""
    pinned = True if PINNED_TAG in wanted.tags else wanted.pinned
    archived = True if ARCHIVED_TAG in wanted.tags else wanted.archived
    labels = {
        Shelf.PINNED: (True, False),
        Shelf.ARCHIVED: (False, True),
        Shelf.PINNED_AND_ARCHIVED: (True, True),
    }
    shown = set(Shelf) if wanted.everything else set(Shelf) - {Shelf.SILENT, Shelf.OLD_RUN}
    return frozenset(
        shelf
        for shelf in shown
        for is_pinned, is_archived in (labels.get(shelf, (False, False)),)
        if pinned in (None, is_pinned) and archived in (None, is_archived)
    )


def shelf_of(card: Card) -> Shelf:
    """The group of a card by itself: each run is the newest of its schedule."""
    about = card.about
    if about.schedule and card.messages <= 1 and not (about.name or about.tags):
        return Shelf.RUN
    label = about.name or about.title or about.tags or about.forked[0] or card.damage
    if not (card.messages or label):
        return Shelf.SILENT
    return Shelf((PINNED_TAG in about.tags) + 2 * (ARCHIVED_TAG in about.tags))


def position_of(card: Card) -> ListPosition:
    return card.changed, card.id
