"""`refold sessions list|search|reindex`: what the catalogue knows, for users and programs.

This module chooses the sessions; `views.session_list` renders them.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

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
from refold.journal.catalogue.session_card import Card, without_old_runs, works_in
from refold.journal.session_index import CardCatalogue, SessionIndex
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, size_text
from refold.views.session_list import card_line, hit_lines, search_hit, session_document

_MAX_TERMINAL_ROWS = 50  # unless --limit says another number
_DEFAULT_COLUMNS = 200  # if the terminal does not say
_SORT_VALUES: dict[str, Callable[[Card], object]] = {
    "changed": lambda card: card.changed,
    "began": lambda card: card.about.started_at,
    "cost": lambda card: (card.spent + card.below).dollars,
    "tokens": lambda card: card.spent.usage.input + card.spent.usage.output,
    "events": lambda card: card.events,
}


def run(home: SessionIndex, args: Namespace) -> int:
    catalogue = home.catalogue(WaitNotice(), print_error)
    if args.what == "reindex":
        return _reindex(home, catalogue, args)
    wanted = _card_filter(args)
    if args.what == "search":
        return _search(home, args, wanted)
    cards = [card for card in catalogue.cards() if wanted(card)]
    _list(cards, args)
    return 0


def _reindex(home: SessionIndex, catalogue: CardCatalogue, args: Namespace) -> int:
    from refold.cli.sessions.masked_directories import repair

    masked = repair(home, os.environ, current_directory())
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
    """Return the filter: sessions of this directory or of all, and with these tags."""
    tags = frozenset(args.tag)
    if args.all:
        return lambda card: tags <= set(card.about.tags)
    works_here = works_in(current_directory())
    return lambda card: works_here(card) and tags <= set(card.about.tags)


def _sort_cards(cards: list[Card], field: str) -> Sequence[Card]:
    if field == "title":
        return sorted(cards, key=lambda c: (c.about.name or c.about.title).casefold())
    return sorted(cards, key=partial(_key, field), reverse=True)


def _key(field: str, card: Card) -> tuple[object, str]:
    return _SORT_VALUES[field](card), card.id


def _list(cards: list[Card], args: Namespace) -> None:
    """Print the cards, which are sorted with the newest first."""
    if args.json:
        for card in _sort_cards(cards, args.sort)[: args.limit]:
            print_document(session_document(card))
        return
    said = [card for card in cards if not _is_empty(card)]
    shown = _sort_cards(without_old_runs(said), args.sort)
    limit = args.limit or (_MAX_TERMINAL_ROWS if sys.stdout.isatty() else len(shown))
    if shown:
        room = terminal_columns(_DEFAULT_COLUMNS)
        lines = (card_line(card, room, everywhere=args.all) for card in shown[:limit])
        write("".join(f"{line}\n" for line in lines))
    cut = 0 if args.limit else max(len(shown) - limit, 0)
    left = (
        (cut, "more session", "more sessions"),
        (len(cards) - len(said), "session without a message", "sessions without a message"),
        (len(said) - len(shown), "earlier run of schedules", "earlier runs of schedules"),
    )
    if some := [f"{n:,} {one if n == 1 else more}" for n, one, more in left if n]:
        print_note(f"{' and '.join(some)} not listed (--json lists all)")
    elif not shown:
        print_note(f"no sessions{_hint(args)}")


def _is_empty(card: Card) -> bool:
    """Return True if no message was sent in the session, and it has no name, tag or title."""
    about = card.about
    label = about.name or about.title or about.tags or about.forked[0] or card.damage
    return not (card.messages or label)


def _search(home: SessionIndex, args: Namespace, matches: Callable[[Card], bool]) -> int:
    text = " ".join(args.text)
    hits = home.catalogue(WaitNotice(), print_error).search(text, args.limit, matches)
    if args.json:
        for hit in hits:
            print_document(search_hit(hit))
    elif hits:
        write(
            "".join(
                f"{line}\n"
                for line in hit_lines(
                    hits, terminal_columns(_DEFAULT_COLUMNS), bold=_shows_bold()
                )
            )
        )
    else:
        print_note(f"nothing found{_hint(args)}")
    return 0 if hits else 1


def _hint(args: Namespace) -> str:
    tags = "".join(f" tagged {tag!r}" for tag in args.tag)
    return tags + ("" if args.all else " in this directory (--all: in every one)")


def _shows_bold() -> bool:
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    )
