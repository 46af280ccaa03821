"""`refold sessions list|search|reindex`: lists and searches the sessions in the catalogue.

This module selects the sessions, and `views.session_list` renders them.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

import msgspec

from refold.cli.output import terminal_columns
from refold.config.paths import current_directory
from refold.headless.streams import (
    WaitNotice,
    print_document,
    print_error,
    print_note,
    write,
)
from refold.journal.catalogue.card_filter import (
    CardFilter,
    Shelf,
    select_cards,
    shelf_of,
)
from refold.journal.catalogue.session_card import Card, works_in
from refold.journal.session_index import CardCatalogue, SessionIndex
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, size_text
from refold.views.session_list import card_line, hit_lines, search_hit, session_document

_MAX_TERMINAL_ROWS = 50  # unless --limit sets another number
_DEFAULT_COLUMNS = 200  # if the terminal does not report its width
_MAX_COUNTED = 1_000  # sessions that are read to count those that are not listed
_NEWEST_FIRST = "changed"
_SORT_VALUES: dict[str, Callable[[Card], object]] = {
    "began": lambda card: card.about.started_at,
    "cost": lambda card: (card.spent + card.below).dollars,
    "tokens": lambda card: card.spent.usage.input + card.spent.usage.output,
    "events": lambda card: card.events,
}


def run(index: SessionIndex, args: Namespace) -> int:
    catalogue = index.catalogue(WaitNotice(), print_error)
    if args.what == "reindex":
        return _reindex(index, catalogue, args)
    if args.what == "search":
        return _search(index, args, _card_filter(args))
    if args.json:
        _list_documents(catalogue, args)
    else:
        _list(catalogue, args)
    return 0


def _reindex(index: SessionIndex, catalogue: CardCatalogue, args: Namespace) -> int:
    """Rebuild the index, and repair sessions with a masked directory. Return exit code 0."""
    from refold.cli.sessions.masked_directories import repair

    masked = repair(index, os.environ, current_directory())
    built = catalogue.rebuild()
    if args.json:
        print_document(
            {**msgspec.to_builtins(built), "masked": msgspec.to_builtins(masked)}
        )
        return 0
    write(
        f"{count_with_noun(built.sessions, 'session')}, {count_with_noun(built.messages, 'message')}, "
        f"{built.seconds:.1f} s, {size_text(built.bytes)}\n"
    )
    for entry in masked:
        stored = f"{entry.session} was stored under {escape_to_one_line(entry.stored)!r}"
        if entry.directory and not entry.problem:
            write(f"{stored}: it works in {escape_to_one_line(entry.directory)} again\n")
        else:
            why = entry.problem or "which directory that was is not known"
            print_error(f"{stored}, and was not repaired: {escape_to_one_line(why)}")
    return 0


def _card_filter(args: Namespace) -> Callable[[Card], bool]:
    """Return the filter for directory and tags that the flags set."""
    tags = frozenset(args.tag)
    if args.all:
        return lambda card: tags <= set(card.about.tags)
    works_here = works_in(current_directory())
    return lambda card: works_here(card) and tags <= set(card.about.tags)


def _list_filter(args: Namespace, *, everything: bool) -> CardFilter:
    """Return the filter for the sessions to list.

    Without `everything`, sessions without a message and earlier runs of schedules are left out.
    """
    directory = "" if args.all else str(current_directory())
    return CardFilter(directory, frozenset(args.tag), everything=everything)


def _sort_cards(cards: Iterable[Card], field: str) -> Iterable[Card]:
    """Return the cards, which are newest first, sorted by `field`.

    For any order except newest first, all cards are read at once.
    """
    if field == _NEWEST_FIRST:
        return cards
    if field == "title":
        return sorted(
            cards, key=lambda card: (card.about.name or card.about.title).casefold()
        )
    return sorted(cards, key=partial(_sort_value, field), reverse=True)


def _sort_value(field: str, card: Card) -> tuple[object, str]:
    return _SORT_VALUES[field](card), card.id


def _list_documents(catalogue: CardCatalogue, args: Namespace) -> None:
    """Print the sessions as JSON lines."""
    cards = catalogue.newest_first(_list_filter(args, everything=True))
    for card in islice(_sort_cards(cards, args.sort), args.limit):
        print_document(session_document(card))


def _list(catalogue: CardCatalogue, args: Namespace) -> None:
    """Print a line for each session, and a note about sessions that are not listed."""
    limit = args.limit or (_MAX_TERMINAL_ROWS if sys.stdout.isatty() else None)
    # the sessions beyond --limit are not mentioned, because the user asked for no more
    mentions_omitted = not args.limit
    every_card = catalogue.newest_first(_list_filter(args, everything=True))
    newest = list(islice(every_card, _MAX_COUNTED + 1))
    if len(newest) <= _MAX_COUNTED:
        listed = list(select_cards(newest, CardFilter()))
        shown = list(islice(_sort_cards(listed, args.sort), limit))
        omitted_count = len(listed) - len(shown) if mentions_omitted else 0
        note = _rest_text(newest, listed, omitted_count)
    else:  # there are too many sessions to read them all, and to count the omitted ones
        cards = catalogue.newest_first(_list_filter(args, everything=False))
        shown = list(islice(_sort_cards(cards, args.sort), limit))
        has_limit = limit is not None
        note = "earlier sessions" if has_limit and mentions_omitted else ""
    if shown:
        width = terminal_columns(_DEFAULT_COLUMNS)
        lines = (card_line(card, width, everywhere=args.all) for card in shown)
        write("".join(f"{line}\n" for line in lines))
    if note:
        print_note(f"{note} not listed (--json lists all)")
    elif not shown:
        print_note(f"no sessions{_filter_text(args)}")


def _rest_text(cards: Sequence[Card], listed: Sequence[Card], cut: int) -> str:
    """Return a text about how many sessions are not shown, and why; "" if all are shown.

    `listed` are the sessions that match the filter; the last `cut` of them are not shown.
    """
    silent = sum(shelf_of(card) is Shelf.SILENT for card in cards)
    # the filter leaves out nothing else
    earlier_runs = len(cards) - silent - len(listed)
    rest = (
        (cut, "more session", "more sessions"),
        (silent, "session without a message", "sessions without a message"),
        (earlier_runs, "earlier run of schedules", "earlier runs of schedules"),
    )
    parts = (
        f"{count:,} {singular if count == 1 else plural}"
        for count, singular, plural in rest
        if count
    )
    return " and ".join(parts)


def _search(index: SessionIndex, args: Namespace, matches: Callable[[Card], bool]) -> int:
    """Print the matches in sessions. Return 1 if there are none, otherwise 0."""
    text = " ".join(args.text)
    hits = index.catalogue(WaitNotice(), print_error).search(text, args.limit, matches)
    if args.json:
        for hit in hits:
            print_document(search_hit(hit))
    elif hits:
        lines = hit_lines(hits, terminal_columns(_DEFAULT_COLUMNS), bold=_shows_bold())
        write("".join(f"{line}\n" for line in lines))
    else:
        print_note(f"nothing found{_filter_text(args)}")
    return 0 if hits else 1


def _filter_text(args: Namespace) -> str:
    tags = "".join(f" tagged {tag!r}" for tag in args.tag)
    return tags + ("" if args.all else " in this directory (--all: in every one)")


def _shows_bold() -> bool:
    """Return whether stdout is a terminal that can show bold text."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    )
