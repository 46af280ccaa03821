"""A journal of any length is read in pieces; a waiter waits for one piece at most."""

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Thread

import pytest

from refold.journal.catalogue.catalogue import Catalogue
from refold.journal.catalogue.database import CatalogueRow, Tables, open_tables
from refold.journal.catalogue.indexer import Indexer, Tell
from refold.journal.events.kinds import Event, Said, SessionResumed, SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.session_files import SessionListing, list_sessions
from tests.journal.journals import as_file, lines
from tests.journal.shelves import conversation_events, put_journal

MESSAGES = 3_500


class Left(Exception):
    """Raised to stop a reader."""


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    return JournalDirectory(tmp_path / "data" / "sessions")


@pytest.fixture
def tables(home: JournalDirectory) -> Iterator[Tables]:
    home.root.mkdir(parents=True)
    result = open_tables(home.catalogue().path)
    yield result
    result.close()


def long_events(word: str = "umbrella", messages: int = MESSAGES) -> list[Event]:
    saids = [Said(f"{word} {n}") for n in range(messages)]
    return [SessionStarted("/work", "0.1"), *saids]


def follow_in_pieces(tables: Tables, home: JournalDirectory, tell: Tell) -> None:
    """In the smallest pieces there are."""
    Indexer(tables, home.path, inf, tell, transaction_seconds=0.0).run(
        list_sessions(home.root)
    )


def ignore_progress(_: int, __: int) -> None:
    raise Left


def row(tables: Tables, id_: str = "long") -> CatalogueRow:
    catalogue_row = tables.row(id_)
    assert catalogue_row is not None
    return catalogue_row


def count_hits(home: JournalDirectory, text: str) -> int:
    return len(home.catalogue().search(text, MESSAGES * 2, lambda _: True))


def count_sessions(catalogue: Catalogue) -> int:
    tables = open_tables(catalogue.path)
    _, messages = tables.count()
    tables.close()
    return messages


def test_indexing_of_a_long_journal_resumes_where_it_was_interrupted(
    home: JournalDirectory, tables: Tables
) -> None:
    file = put_journal(home, "long", *long_events())
    reached = list[int]()

    for _ in range(3):
        with suppress(Left):
            follow_in_pieces(tables, home, ignore_progress)
        reached.append(row(tables).read.upto)

    assert 0 < reached[0] < reached[1] < reached[2] < file.stat().st_size
    cards = home.catalogue().cards()
    assert row(tables).read.upto == file.stat().st_size
    assert (cards[0].events, count_sessions(home.catalogue())) == (MESSAGES + 1, MESSAGES)
    home.catalogue().rebuild()
    assert home.catalogue().cards() == cards


def test_another_process_can_use_the_catalogue_between_two_pieces(
    home: JournalDirectory, tables: Tables
) -> None:
    put_journal(home, "long", *long_events(messages=9_000))
    entered = list[str]()

    def enter() -> None:
        other = open_tables(home.catalogue().path)
        other.begin()
        entered.append("in")
        other.commit()
        other.close()

    waiting = Thread(target=enter)

    def tell(done: int, _: int) -> None:
        if waiting.ident is None:
            waiting.start()
        if entered:
            raise Left

    with pytest.raises(Left):
        follow_in_pieces(tables, home, tell)

    waiting.join()
    assert row(tables).card.events < 9_001


def test_catalogue_reads_a_replaced_journal_again_from_the_start(
    home: JournalDirectory, tables: Tables
) -> None:
    """Another journal had its path for a moment."""
    file = put_journal(home, "long", *long_events())
    follow_in_pieces(tables, home, lambda _, __: None)
    first = file.read_bytes()
    put_journal(home, "long", *long_events("parasol"))
    with suppress(Left):
        follow_in_pieces(tables, home, ignore_progress)
    before = tables.count()[1]

    file.write_bytes(first)
    home.catalogue().freshen()

    assert 0 < before < MESSAGES
    assert count_sessions(home.catalogue()) == MESSAGES
    assert count_hits(home, "umbrella") == 3  # the best of one session


def test_a_deleted_long_session_is_removed_from_the_catalogue_in_pieces(
    home: JournalDirectory, tables: Tables
) -> None:
    file = put_journal(home, "long", *long_events())
    put_journal(home, "other", *conversation_events("so"))
    follow_in_pieces(tables, home, lambda _, __: None)
    file.unlink()
    reports = list[tuple[int, int]]()

    follow_in_pieces(tables, home, lambda done, of: reports.append((done, of)))

    assert reports == [(0, 1), (0, 1), (0, 1), (1, 1)]
    assert tables.count() == (1, 1)


def test_the_newest_session_is_right_while_a_journal_is_half_indexed(
    home: JournalDirectory, tables: Tables, tmp_path: Path
) -> None:
    moved: list[Event] = [
        *long_events(messages=1_500),
        SessionResumed(directory=str(tmp_path)),
    ]
    put_journal(home, "long", *moved, changed=1.0)
    for n in range(70):
        put_journal(home, f"s{n}", *conversation_events("so"), changed=n + 2.0)
    with suppress(Left):
        there = list_sessions(home.root)
        Indexer(tables, home.path, inf, ignore_progress, 0.0).run(
            SessionListing(("long",), there.stamps)
        )

    newest = home.newest_of(tmp_path)

    assert row(tables).card.events < 1_502
    assert newest is not None
    assert newest.id == "long"


def test_a_journal_of_few_long_lines_is_also_read_in_pieces(
    home: JournalDirectory, tables: Tables
) -> None:
    events = [SessionStarted("/work", "0.1"), *[Said("x" * 1_000_000)] * 6]
    chunks, _ = lines(events)
    file = home.path("long") / "events.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(as_file(chunks))

    with suppress(Left):
        follow_in_pieces(tables, home, ignore_progress)

    assert 0 < row(tables).card.events < 7
