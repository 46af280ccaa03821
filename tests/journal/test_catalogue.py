"""The catalogue says what the journals say, whatever happens to either."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.errors import RefoldError
from refold.journal.catalogue.catalogue import Catalogue
from refold.journal.catalogue.database import open_tables
from refold.journal.catalogue.session_card import Card
from refold.journal.events import codec
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import Event, ModelAnswered, Said
from refold.journal.events.setting_events import Renamed, Tagged
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state import fold
from refold.values.messages import Message, Text
from refold.values.usage import Usage
from tests.journal.journals import as_file, lines
from tests.journal.shelves import conversation_events, put_journal
from tests.session.golden.record import EVENTS as GOLDEN


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    return JournalDirectory(tmp_path / "data" / "sessions")


def search(home: JournalDirectory, text: str) -> list[tuple[str, int]]:
    return [(hit.card.id, hit.seq) for hit in home.catalogue().search(text, 50)]


def answer_event(text: str) -> ModelAnswered:
    return ModelAnswered(Message("assistant", (Text(text),)), usage=Usage(1))


def ids(cards: Sequence[Card]) -> list[str]:
    return [card.id for card in cards]


def test_a_card_matches_the_folded_journal(home: JournalDirectory) -> None:
    file = put_journal(
        home, "one", *GOLDEN, Renamed("walk"), Tagged(("rain", "sun")), changed=7.0
    )

    (card,) = home.catalogue().cards()

    view = fold.fold(e for e, _ in codec.decode(file.read_bytes().split(b"\n")[:-1]))
    assert (card.about, card.events, card.changed) == (view.session, view.seq, 7.0)
    assert (card.spent, card.below) == (view.account.spent, view.account.children_spent)
    assert (card.outcome, card.open) == (view.turn.outcome, bool(view.turn.seq))
    assert (card.about.name, card.about.tags) == ("walk", ("rain", "sun"))
    assert (card.model, card.damage) == (view.conversation.system_prompt.model, "")


def test_a_card_has_the_beginning_of_the_last_message_and_of_its_answer(
    home: JournalDirectory,
) -> None:
    put_journal(
        home, "one", Said("old"), answer_event("older"), Said("x" * 999, typed="/fix a.py")
    )
    put_journal(home, "two", Said("old"), answer_event("first"), answer_event("y" * 999))

    cards = {card.id: card for card in home.catalogue().cards()}

    assert (cards["one"].asked, cards["one"].answer) == ("/fix a.py", "")
    assert (cards["two"].asked, cards["two"].answer) == ("old", "y" * 400)


def test_cards_are_sorted_by_their_last_write(home: JournalDirectory) -> None:
    for name, changed in (("a", 2.0), ("b", 3.0), ("c", 1.0)):
        put_journal(home, name, *conversation_events("so"), changed=changed)

    assert ids(home.catalogue().cards()) == ["b", "a", "c"]


def test_catalogue_indexes_appended_events_once(
    home: JournalDirectory,
) -> None:
    put_journal(home, "one", *conversation_events("umbrella"))
    before = search(home, "umbrella")

    put_journal(
        home, "one", *conversation_events("umbrella", "umbrella again"), changed=2.0
    )

    assert before == [("one", 2)]
    assert sorted(search(home, "umbrella")) == [("one", 2), ("one", 5)]
    assert [card.events for card in home.catalogue().cards()] == [7]


@pytest.mark.parametrize(
    "now",
    [
        conversation_events("sun"),
        conversation_events("sunshine and much more of it", "umbrella stand"),
        conversation_events("x")[:1],
        (),
    ],
    ids=["replaced", "longer", "cut", "empty"],
)
def test_a_replaced_journal_is_indexed_again(
    home: JournalDirectory, now: Sequence[Event]
) -> None:
    put_journal(home, "one", *conversation_events("umbrella", "rain"))
    assert search(home, "umbrella") == [("one", 2)]

    put_journal(home, "one", *now, changed=2.0)

    assert search(home, "umbrella") == ([("one", 5)] if len(now) > 4 else [])
    assert [card.events for card in home.catalogue().cards()] == [len(now)]


def test_a_partial_line_is_indexed_once_it_is_complete(home: JournalDirectory) -> None:
    file = put_journal(home, "one", *conversation_events("umbrella"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    before = home.catalogue().cards()

    file.write_bytes(whole)

    assert [card.events for card in before] == [3]
    assert [(card.events, card.damage) for card in home.catalogue().cards()] == [(4, "")]


def test_damage_is_reported_and_events_before_it_are_found(home: JournalDirectory) -> None:
    file = put_journal(home, "one", *conversation_events("umbrella", "lost"))
    file.write_bytes(file.read_bytes().replace(b"lost", b"LOST"))

    (card,) = home.catalogue().cards()

    assert "line 5 of the journal is damaged: it, or the line before it" in card.damage
    assert (search(home, "umbrella"), search(home, "lost")) == ([("one", 2)], [])


def test_a_journal_that_could_not_be_read_is_tried_again(home: JournalDirectory) -> None:
    file = home.path("one") / "events.jsonl"
    file.mkdir(parents=True)
    (before,) = home.catalogue().cards()
    file.rmdir()

    put_journal(home, "one", *conversation_events("umbrella"))

    assert "cannot be read: Is a directory" in before.damage
    assert [card.damage for card in home.catalogue().cards()] == [""]


def test_deleted_session_leaves_the_catalogue_with_its_children(
    home: JournalDirectory,
) -> None:
    born = ChildBorn("child-1", "c", "explore", "look")
    put_journal(home, "one", *conversation_events("umbrella"), born)
    put_journal(home, "one/child-1", *conversation_events("umbrella below"))
    put_journal(home, "two", *conversation_events("umbrella elsewhere"))
    before = sorted(search(home, "umbrella"))

    shutil.rmtree(home.path("one"))

    assert before == [("one", 2), ("one/child-1", 2), ("two", 2)]
    assert search(home, "umbrella") == [("two", 2)]
    assert ids(home.catalogue().cards(children=True)) == ["two"]


def test_a_child_is_indexed_even_if_its_parent_has_no_new_events(
    home: JournalDirectory,
) -> None:
    put_journal(
        home,
        "one",
        *conversation_events("go"),
        ChildBorn("child-1", "c", "explore", "look"),
    )
    before = ids(home.catalogue().cards(children=True))
    put_journal(home, "one/child-1", *conversation_events("umbrella"))
    between = search(home, "umbrella")

    put_journal(
        home, "one/child-1", *conversation_events("umbrella", "umbrella"), changed=2.0
    )

    assert (before, between) == (["one"], [("one/child-1", 2)])
    assert sorted(search(home, "umbrella")) == [("one/child-1", 2), ("one/child-1", 5)]
    assert ids(home.catalogue().cards()) == ["one"]


def write_garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def scribble(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))


def write_older_version(path: Path) -> None:
    apsw.Connection(str(path)).execute("PRAGMA user_version = 999")


def remove_tables(path: Path) -> None:
    apsw.Connection(str(path)).execute("DROP TABLE words")


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "harm",
    [write_garbage, tear, scribble, write_older_version, remove_tables, remove, truncate],
)
def test_a_broken_catalogue_is_rebuilt(
    home: JournalDirectory, harm: Callable[[Path], None]
) -> None:
    for n in range(3):
        put_journal(home, f"s{n}", *conversation_events("umbrella"))
    before, texts = home.catalogue().cards(), list[str]()
    path = home.catalogue().path
    harm(path)

    after = home.catalogue(notice=texts.append).cards()
    hits = home.catalogue(notice=texts.append).search("umbrella", 9)

    assert (after, len(hits), texts) == (before, 3, [])


@pytest.mark.parametrize("children", [False, True])
def test_without_a_writable_catalogue_every_journal_is_read_with_a_notice(
    home: JournalDirectory, *, children: bool
) -> None:
    put_journal(
        home,
        "one",
        *conversation_events("umbrella"),
        ChildBorn("child-1", "c", "explore", "look"),
    )
    put_journal(home, "one/child-1", *conversation_events("umbrella"))
    put_journal(home, "two", *conversation_events("umbrella"), changed=2.0)
    wanted = home.catalogue().cards(children=children)
    path = home.catalogue().path
    path.unlink()
    path.mkdir()
    texts = list[str]()
    catalogue = home.catalogue(notice=texts.append)

    cards, hits = catalogue.cards(children=children), catalogue.search("umbrella", 9)

    assert (cards, len(hits)) == (wanted, 3)
    assert texts == [
        f"the catalogue {path} cannot be used (no file stands in its place): every session is read, "
        "which takes longer"
    ]


def test_the_catalogue_is_readable_only_by_its_owner(home: JournalDirectory) -> None:
    put_journal(home, "one", *conversation_events("umbrella"))

    home.catalogue().freshen()

    assert home.catalogue().path.stat().st_mode & 0o777 == 0o600


def test_an_interrupted_update_keeps_the_journals_indexed_so_far(
    home: JournalDirectory,
) -> None:
    for n in range(300):
        put_journal(
            home, f"s{n:03}", *conversation_events("umbrella"), changed=float(n + 1)
        )

    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        home.catalogue(stop).freshen()

    left = list[tuple[int, int]]()
    cards = home.catalogue(lambda done, of: left.append((done, of))).cards()
    assert all(of < 300 for _, of in left)
    assert len(cards) == 300


def test_a_listing_with_no_time_to_update_shows_the_indexed_sessions(
    home: JournalDirectory,
) -> None:
    put_journal(home, "one", *conversation_events("umbrella"))
    home.catalogue().freshen()
    put_journal(home, "two", *conversation_events("umbrella"))

    assert ids(home.catalogue().cards(seconds=0.0)) == ["one"]
    assert set(home.catalogue().last_cards()) == {"one"}


def test_several_threads_can_update_the_catalogue_at_once(home: JournalDirectory) -> None:
    for n in range(40):
        put_journal(home, f"s{n}", *conversation_events("umbrella", "and more"))
    texts = list[str]()
    threads = [Thread(target=home.catalogue(notice=texts.append).freshen) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts == []
    assert len(home.catalogue().search("umbrella", 100)) == 40


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 14), min_size=1, max_size=5))
def test_updating_in_any_number_of_steps_gives_the_same_catalogue_as_a_rebuild(
    tmp_path: Path, cuts: list[int]
) -> None:
    """The steps are prefixes of a journal that grows, is cut and is rewritten."""
    home = JournalDirectory(tmp_path / "data" / "sessions")
    whole = as_file(
        lines([*conversation_events("umbrella", "rain", "sun"), Said("open")])[0]
    )
    file = home.path("one") / "events.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    for n, cut in enumerate([*cuts, 14]):
        file.write_bytes(whole[: len(whole) * cut // 14])
        os.utime(file, (n + 1, n + 1))
        home.catalogue().freshen()
    pieces = (home.catalogue().cards(), index_content(home.catalogue()))

    home.catalogue().rebuild()

    assert pieces == (home.catalogue().cards(), index_content(home.catalogue()))
    assert pieces[1] == [("one", 2, "umbrella"), ("one", 5, "rain"), ("one", 8, "sun")]


def index_content(catalogue: Catalogue) -> list[tuple[str, int, str]]:
    words = ("umbrella", "rain", "sun")
    hits = [hit for word in words for hit in catalogue.search(word, 9)]
    marks = str.maketrans("", "", "\x02\x03")
    return [(hit.card.id, hit.seq, hit.snippet.translate(marks)) for hit in hits]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="tells who locks what")
def test_a_second_connection_in_a_process_keeps_the_locks_of_the_first(
    home: JournalDirectory,
) -> None:
    home.root.mkdir(parents=True)
    place = home.catalogue().path
    first = open_tables(place)
    before = locks(place)

    second = open_tables(place)

    assert before
    assert locks(place) == before
    second.close()
    first.close()


def locks(file: Path) -> list[str]:
    """Return the locks that this process holds on the catalogue."""
    ours = f" {os.getpid()} "
    lock_rows = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    inode = f":{file.stat().st_ino} "
    return [row.split(": ", 1)[1] for row in lock_rows if ours in row and inode in row]


@pytest.mark.slow
def test_a_reader_that_waits_too_long_for_the_lock_reads_every_journal(
    home: JournalDirectory,
) -> None:
    put_journal(home, "one", *conversation_events("umbrella"))
    home.catalogue().freshen()
    put_journal(home, "two", *conversation_events("umbrella"))
    texts = list[str]()

    other = apsw.Connection(str(home.catalogue().path))
    other.execute("BEGIN IMMEDIATE")
    cards = home.catalogue(notice=texts.append).cards()
    other.close()

    assert sorted(ids(cards)) == ["one", "two"]
    assert [words.partition("(")[2] for words in texts] == [
        "database is locked): every session is read, which takes longer"
    ]


@pytest.mark.timeout(4)  # others wait for five seconds
def test_an_update_with_a_time_limit_does_not_wait_for_another_writer(
    home: JournalDirectory,
) -> None:
    put_journal(home, "one", *conversation_events("umbrella"))
    catalogue = home.catalogue()
    catalogue.freshen()
    put_journal(home, "two", *conversation_events("parasol"))
    other = apsw.Connection(str(catalogue.path))
    other.execute("BEGIN IMMEDIATE")

    done = catalogue.freshen(0.01)
    other.close()

    assert not done
    assert ids(home.catalogue().cards()) == ["two", "one"]


def test_during_a_rebuild_readers_see_the_previous_catalogue(
    home: JournalDirectory,
) -> None:
    for name in ("a", "b", "c"):
        put_journal(home, name, *conversation_events("umbrella"))
    home.catalogue().freshen()
    known = list[int]()

    def place(id_: str) -> Path:
        known.append(len(home.catalogue().last_cards()))
        return home.path(id_)

    built = Catalogue(home.root, place).rebuild()

    assert set(known) == {3}
    assert built.sessions == 3
    assert ids(home.catalogue().cards()) == ["c", "b", "a"]


def test_a_rebuild_without_a_writable_catalogue_fails(home: JournalDirectory) -> None:
    put_journal(home, "a", *conversation_events("umbrella"))
    home.catalogue().path.mkdir()

    with pytest.raises(RefoldError, match=r"catalogue\.sqlite is unchanged: see above"):
        home.catalogue().rebuild()


@pytest.mark.slow
def test_a_full_disk_for_the_temporary_catalogue_is_reported(
    home: JournalDirectory,
) -> None:
    put_journal(
        home, "a", *conversation_events(*(f"{n} umbrella " * 1_500 for n in range(300)))
    )
    home.catalogue().path.mkdir()
    program = (
        "import resource\n"
        "from pathlib import Path\n"
        "from refold.journal.journal_directory import JournalDirectory\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        f"JournalDirectory(Path({str(home.root)!r})).catalogue().search('umbrella', 3)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "refold.errors.RefoldError: no temporary catalogue can be written"
    )
