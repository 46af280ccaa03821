"""How sessions are named, and how one is found."""

import os
from pathlib import Path

import anyio
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.events.kinds import Said, SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.file import FileStore
from tests.journal.disks import Careless
from tests.journal.journals import THREADS, write

AT = 1_795_300_828.0  # 2026-11-21 22:40:28 UTC


def begin_session(
    home: JournalDirectory, session: str, directory: Path, changed: float
) -> None:
    store = FileStore(home.path(session), THREADS, Careless())
    anyio.run(write, store, [SessionStarted(str(directory)), Said("so")])
    os.utime(home.path(session) / "events.jsonl", (changed, changed))


def test_a_session_directory_that_cannot_be_created_fails_the_first_write(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    home = JournalDirectory(tmp_path / "file" / "sessions")

    with pytest.raises(
        JournalError, match=r"events\.jsonl: Not a directory; a file stands"
    ):
        anyio.run(write, home.store("one"), [Said("so")])


def test_ids_are_readable_and_sort_by_time(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)

    ids = [home.new_id(AT + n) for n in range(20)]

    assert ids == sorted(ids)
    assert ids[0].startswith("20261121-224028-")
    assert len(ids[0]) == len("20261121-224028-x7k2")


def test_listing_an_unused_home_finds_nothing_and_creates_no_directory(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path / "sessions")

    assert list(home.sessions()) == []
    assert home.newest_of(tmp_path) is None
    assert not home.root.exists()


def test_a_session_name_with_a_null_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no session 'a\\x00b'"):
        JournalDirectory(tmp_path).find("a\0b")


def test_a_directory_with_a_pipe_instead_of_a_journal_is_not_listed(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    begin_session(home, "a", tmp_path, 2.0)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "events.jsonl")  # opening it would wait without end

    assert [session.id for session in home.sessions()] == ["a"]


def test_sessions_are_sorted_by_their_last_write(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    for name, changed in (("a", 2.0), ("b", 3.0), ("c", 1.0)):
        begin_session(home, name, tmp_path, changed)
    (tmp_path / "no session").mkdir()
    (tmp_path / "a file").write_bytes(b"")

    rows = [
        (session.id, home.path(session.id), session.changed) for session in home.sessions()
    ]

    assert rows == [(n, tmp_path / n, time) for n, time in (("b", 3), ("a", 2), ("c", 1))]


def test_the_newest_session_of_a_directory_is_found_by_its_real_path(
    tmp_path: Path,
) -> None:
    home, here, there = (
        JournalDirectory(tmp_path / "home"),
        tmp_path / "here",
        tmp_path / "there",
    )
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    begin_session(home, "old", here, 1.0)
    begin_session(home, "by-link", tmp_path / "link", 2.0)
    begin_session(home, "elsewhere", there, 3.0)
    begin_session(home, "damaged", here, 4.0)
    (home.path("damaged") / "events.jsonl").write_bytes(b"?\n")

    newests = [home.newest_of(path) for path in (here, tmp_path / "link", tmp_path)]

    assert [session and session.id for session in newests] == ["by-link", "by-link", None]


def test_a_session_is_found_by_its_id_or_a_unique_prefix(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path)
    for name in ("20261121-a", "20261121-ab", "20261122-a"):
        begin_session(home, name, tmp_path, 1.0)

    ids = [home.find(text).id for text in ("20261121-a", "20261121-ab", "20261122")]

    assert ids == ["20261121-a", "20261121-ab", "20261122-a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty text names no session"),
        (
            "2026",
            "'2026' is the beginning of 2 sessions: 20261122-b ('so'); 20261121-a ('so'). ",
        ),
        ("20261121-x", "there is no session '20261121-x'; did you mean 20261121-a?"),
        ("../20261121-a", "there is no session '../20261121-a'"),
        ("zzz", "there is no session 'zzz' (`refold sessions list` shows all)"),
    ],
)
def test_an_ambiguous_or_unknown_session_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    home = JournalDirectory(tmp_path)
    for name in ("20261121-a", "20261122-b"):
        begin_session(home, name, tmp_path, 1.0)

    with pytest.raises(BadInput) as caught:
        home.find(text)

    assert str(caught.value).startswith(message)


def test_a_directory_name_that_is_not_utf_8_does_not_stop_the_listing(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path / "data" / "sessions")
    for name in ("one", os.fsdecode(b"\xff\xfe")):
        begin_session(home, name, tmp_path, 1.0)

    assert [session.id for session in home.sessions()] == ["one"]
    assert [card.id for card in home.catalogue().cards()] == ["one"]


def test_a_session_without_a_journal_is_refused_with_its_path(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    (tmp_path / "one").mkdir()

    with pytest.raises(BadInput) as caught:
        home.find("one")

    assert str(caught.value) == (
        f"there is no readable journal in {tmp_path / 'one'}: check what happened to it"
    )
