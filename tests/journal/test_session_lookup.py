"""A session is found by its id, by its name, and by the beginning of either."""

from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.journal.events.kinds import Event, Forked, SessionStarted
from refold.journal.events.setting_events import Renamed
from refold.journal.journal_directory import JournalDirectory
from tests.journal.shelves import conversation_events, put_journal


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    """Four sessions; the names of two are alike, and one is called as another's id begins."""
    directory = JournalDirectory(tmp_path / "data" / "sessions")
    data = {"20260101-a": "walk", "20260102-b": "Walk home", "20260103-c": "walk home"}
    for n, (id_, name) in enumerate(data.items()):
        put_journal(
            directory,
            id_,
            *conversation_events(f"say {n}"),
            Renamed("old"),
            Renamed(name),
            changed=n + 1.0,
        )
    put_journal(
        directory,
        "20260104-d",
        *conversation_events("say 3"),
        Renamed("20260102"),
        changed=9.0,
    )
    return directory


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("20260101-a", "20260101-a"),
        ("walk", "20260101-a"),
        ("WALK", "20260101-a"),
        ("20260102", "20260104-d"),
        ("20260102-", "20260102-b"),
        ("20260103", "20260103-c"),
    ],
)
def test_an_id_is_preferred_to_a_name_and_a_full_name_to_an_id_prefix(
    home: JournalDirectory, text: str, id_: str
) -> None:
    assert home.find(text).id == id_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "walk home",
            "'walk home' is the name of 2 sessions: 20260103-c ('walk home'); 20260102-b "
            "('Walk home'). Give more of the id",
        ),
        (
            "wal",
            "'wal' is the beginning of the name of 3 sessions: 20260103-c ('walk home'); "
            "20260102-b ('Walk home'); 20260101-a ('walk'). Give more of the id",
        ),
        (
            "2026010",
            "'2026010' is the beginning of 4 sessions: 20260104-d ('20260102'); 20260103-c "
            "('walk home'); 20260102-b ('Walk home'); 20260101-a ('walk'). Give more of the id",
        ),
        ("old", "there is no session 'old' (`refold sessions list` shows all)"),
    ],
)
def test_find_explains_ambiguous_and_unknown_sessions(
    home: JournalDirectory, text: str, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        home.find(text)

    assert str(caught.value) == message


def test_names_are_found_without_a_catalogue(home: JournalDirectory) -> None:
    home.catalogue().path.mkdir()

    assert home.find("walk").id == "20260101-a"


def test_a_fork_does_not_inherit_the_name(home: JournalDirectory) -> None:
    events: list[Event] = [SessionStarted("/work"), Renamed("garden")]
    put_journal(home, "20260105-e", *events, Forked("20260105-z", 2, id="20260105-e"))

    with pytest.raises(BadInput, match="there is no session 'garden'"):
        home.find("garden")


def test_the_newest_session_of_a_directory_is_found_among_many(tmp_path: Path) -> None:
    """The test looks with an up-to-date catalogue, an old one, and none."""
    home = JournalDirectory(tmp_path / "data" / "sessions")
    here, there = str(tmp_path), str(tmp_path / "there")
    put_journal(home, "mine", *conversation_events("so", directory=here), changed=1.0)
    put_journal(home, "moved", *conversation_events("so", directory=there), changed=2.0)
    for n in range(80):
        put_journal(
            home, f"s{n}", *conversation_events("so", directory=there), changed=n + 3.0
        )

    without = home.newest_of(tmp_path)
    home.catalogue().freshen()
    with_it = home.newest_of(tmp_path)
    put_journal(home, "moved", *conversation_events("so", directory=here), changed=2.5)

    assert [session and session.id for session in (without, with_it)] == ["mine", "mine"]
    assert (newest := home.newest_of(tmp_path)) is not None
    assert newest.id == "moved"


def test_last_finds_the_newest_session_of_the_directory_and_its_child(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path / "data" / "sessions")
    put_journal(
        home, "mine", *conversation_events("so", directory=str(tmp_path)), changed=1.0
    )
    put_journal(home, "mine/child-1", *conversation_events("so"), changed=9.0)
    put_journal(home, "other", *conversation_events("so"), changed=2.0)

    ids = [home.resolve(text, tmp_path).id for text in ("last", "last/child-1", "other")]

    assert ids == ["mine", "mine/child-1", "other"]
    with pytest.raises(BadInput, match=r"no session was started in .* yet: name one"):
        home.resolve("last", tmp_path / "nowhere")
