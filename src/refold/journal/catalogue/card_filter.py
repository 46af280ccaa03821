"""Describes which sessions a list shows, and selects their cards. Pure.

A catalogue in a database selects with a query instead. For that, it stores the `Shelf` of each
card.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from refold.journal.catalogue.session_card import Card, without_old_runs, works_in
from refold.values.session_tags import ARCHIVED_TAG, PINNED_TAG

ListPosition: TypeAlias = tuple[float, str]  # when a session was changed, and its id


class CardFilter(Struct, frozen=True):
    """Selects the sessions of a list: they match all fields that are set.
    A list has sessions with a message or a label, and only the newest run of each schedule. If
    `everything`, it has all sessions. It never has subagents.
    """

    directory: str = ""  # where the session works, links resolved
    tags: frozenset[str] = frozenset()
    pinned: bool | None = None
    archived: bool | None = None
    open: bool = False  # a turn is running, or was when the session was left
    everything: bool = False


class Shelf(IntEnum):
    """The groups of cards. Each card is in one group, and each list shows some of the
    groups.
    """

    PLAIN = 0
    PINNED = 1
    ARCHIVED = 2
    PINNED_AND_ARCHIVED = 3
    SILENT = 4  # it has neither a message nor a label
    RUN = 5  # the newest run of its schedule, without a name, a tag or a second message
    OLD_RUN = 6


def select_cards(
    cards: Sequence[Card], wanted: CardFilter, after: ListPosition | None = None
) -> Iterator[Card]:
    """Yield the cards of a list that come after the position `after`, or all if it is None.

    `cards` has the cards of all sessions, the newest first.
    """
    shelves = shelves_of(wanted)
    is_in_directory = works_in(wanted.directory) if wanted.directory else None
    matches: Sequence[Card] = [
        card
        for card in cards
        if shelf_of(card) in shelves
        and (card.open or not wanted.open)
        and wanted.tags <= set(card.about.tags)
        and (is_in_directory is None or is_in_directory(card))
    ]
    if not wanted.everything:
        matches = without_old_runs(matches)
    for card in matches:
        if after is None or position_of(card) < after:
            yield card


def shelves_of(wanted: CardFilter) -> frozenset[Shelf]:
    """Return the groups whose cards the list `wanted` may show."""
    pinned = True if PINNED_TAG in wanted.tags else wanted.pinned
    archived = True if ARCHIVED_TAG in wanted.tags else wanted.archived
    labels = {
        Shelf.PINNED: (True, False),
        Shelf.ARCHIVED: (False, True),
        Shelf.PINNED_AND_ARCHIVED: (True, True),
    }
    shelves = set[Shelf]()
    for shelf in Shelf:
        is_pinned, is_archived = labels.get(shelf, (False, False))
        if pinned in (None, is_pinned) and archived in (None, is_archived):
            shelves.add(shelf)
    if not wanted.everything:
        shelves -= {Shelf.SILENT, Shelf.OLD_RUN}
    return frozenset(shelves)


def shelf_of(card: Card) -> Shelf:
    """Return the group of a card.

    One card does not show whether a run is the newest of its schedule, so each run counts as
    the newest: `OLD_RUN` is never returned.
    """
    about = card.about
    if about.schedule and card.messages <= 1 and not (about.name or about.tags):
        return Shelf.RUN
    fork_source, _ = about.forked
    label = about.name or about.title or about.tags or fork_source or card.damage
    if not (card.messages or label):
        return Shelf.SILENT
    is_pinned, is_archived = PINNED_TAG in about.tags, ARCHIVED_TAG in about.tags
    if is_archived:
        return Shelf.PINNED_AND_ARCHIVED if is_pinned else Shelf.ARCHIVED
    return Shelf.PINNED if is_pinned else Shelf.PLAIN


def position_of(card: Card) -> ListPosition:
    return card.changed, card.id
