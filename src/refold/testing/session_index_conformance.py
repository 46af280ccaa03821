"""The contract of a session index, as tests for other implementations.

class TestMySessions(SessionIndexContract):
    @pytest.fixture
    def sessions(self): return MySessions()
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import anyio
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.bundle.unpack import unpack
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import Ended, Event, Said, SessionResumed, SessionStarted
from refold.journal.session_index import SessionIndex
from refold.session.recorder import Recorder

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"


def record(sessions: SessionIndex, session: str, *events: Event) -> None:
    """Write these events in one session, and close it."""

    async def write() -> None:
        recorder = Recorder(sessions.store(session))
        await recorder(*events, kept=True)
        await recorder.close()

    anyio.run(write)


def talk(directory: Path, text: str) -> tuple[Event, Event]:
    return SessionStarted(str(directory)), Said(text)


class SessionIndexContract:
    def test_without_sessions_nothing_is_listed_or_found(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        assert list(sessions.sessions()) == []
        assert sessions.catalogue().cards() == []
        assert sessions.newest_of(tmp_path) is None
        assert not sessions.exists(ONE)
        with pytest.raises(BadInput, match="there is no session"):
            sessions.find(ONE)

    def test_a_session_that_was_opened_and_not_written_is_none(
        self, sessions: SessionIndex
    ) -> None:
        async def open_session() -> None:
            recorder = Recorder(sessions.store(ONE))
            await recorder.open()
            await recorder.close()

        anyio.run(open_session)

        assert list(sessions.sessions()) == []
        assert not sessions.exists(ONE)

    def test_the_last_written_is_listed_first_and_is_the_newest(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, TWO, *talk(tmp_path, "Two."))
        record(sessions, ONE, *talk(tmp_path, "One."))

        assert [session.id for session in sessions.sessions()] == [ONE, TWO]
        assert [card.id for card in sessions.catalogue().cards()] == [ONE, TWO]
        assert (newest := sessions.newest_of(tmp_path)) is not None
        assert newest.id == ONE == sessions.resolve("last", tmp_path).id
        assert sessions.newest_of(tmp_path / "elsewhere") is None

    def test_a_session_is_found_by_its_beginning(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *talk(tmp_path, "One."))
        record(sessions, TWO, *talk(tmp_path, "Two."))

        assert [sessions.find(text).id for text in (ONE, TWO[:8])] == [ONE, TWO]
        with pytest.raises(BadInput):
            sessions.find("2026")

    def test_restoring_the_time_of_a_session_keeps_its_place(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *talk(tmp_path, "One."))
        record(sessions, TWO, *talk(tmp_path, "Two."))

        set_back = sessions.remember_time(ONE)
        record(sessions, ONE, Said("Later."))
        set_back()

        assert [each.id for each in sessions.sessions()] == [TWO, ONE]

    def test_words_find_the_event_in_which_they_were_said(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *talk(tmp_path, "Fix the garden gate."))
        record(sessions, TWO, *talk(tmp_path, "Paint it."))

        assert [hit.card.id for hit in sessions.catalogue().search("garden", 5)] == [ONE]
        assert sessions.catalogue().search("bicycle", 5) == []

    def test_events_are_read_as_they_were_written(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        events = talk(tmp_path, "One.")
        record(sessions, ONE, *events)

        entries, damage = sessions.entries(ONE)

        assert ([entry.event for entry in entries], damage) == ([*events], "")
        assert sessions.mentions(ONE, b"One.")
        assert not sessions.mentions(ONE, b"Two.")
        assert sessions.entries(TWO)[1] != ""

    def test_a_session_works_where_it_was_resumed(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *talk(tmp_path, "One."))
        record(sessions, ONE, SessionResumed(directory=str(tmp_path / "other")))

        assert sessions.first_directory(ONE) == str(tmp_path)
        assert sessions.directories(ONE).directory == str(tmp_path / "other")

    def test_a_tree_has_the_subagents_of_its_session(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        news = sessions.follow(ONE, "root")
        assert news.new_entries() == []
        self._write_tree(sessions, tmp_path)

        root = sessions.tree(ONE)

        assert [entry.session for entry in root.children] == [f"{ONE}/child-1"]
        assert list(sessions.children(ONE)) == ["child-1"]
        assert [entry.id for entry in sessions.sessions()] == [ONE]
        assert sessions.find(f"{ONE}/child-1").id == f"{ONE}/child-1"
        assert [address for address, _ in news.new_entries()] == [
            *["root"] * 3,
            *["root/child-1"] * 2,
        ]
        assert news.new_entries() == []

    def test_a_fork_has_the_events_and_the_blobs_up_to_its_event(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        blob = self._write_blob(sessions, ONE, tmp_path)
        before = sessions.entries(ONE)

        fork = sessions.fork(ONE, 3, 1_800_000_000.0)

        assert (fork.source, fork.seq) == (ONE, 3)
        assert [e.event for e in sessions.entries(fork.id)[0]][:3] == [
            e.event for e in before[0][:3]
        ]
        assert sessions.blob(fork.id, blob) == b"all of it"
        assert sessions.entries(ONE) == before
        with pytest.raises(BadInput, match="no event 9"):
            sessions.fork(ONE, 9, 1_800_000_000.0)

    def test_a_whole_session_has_no_damage_and_can_be_packed(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        self._write_blob(sessions, ONE, tmp_path)
        self._write_tree(sessions, tmp_path, TWO)

        report = sessions.check(ONE)
        packed = sessions.pack(TWO)

        assert (report.damages, report.events, report.blobs) == ((), 4, 1)
        assert (packed.sessions, packed.events, packed.damages) == (2, 5, [])
        assert b"".join(packed.pieces())
        assert sessions.size(TWO).sessions == 2

    def test_an_imported_session_is_stored_with_its_subagents(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        self._write_tree(sessions, tmp_path)
        tar = b"".join(sessions.pack(ONE).pieces())

        with sessions.importing() as files:
            imported = unpack(files, BytesIO(tar), "a.tar", 1.8e9, str(tmp_path))

        assert imported.taken
        assert imported.id != ONE
        assert sessions.directories(imported.id).directory == str(tmp_path)
        assert list(sessions.children(imported.id)) == ["child-1"]
        assert sessions.check(imported.id).damages == ()

    def test_a_deleted_session_is_gone_with_its_subagents(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        self._write_tree(sessions, tmp_path)
        blob = self._write_blob(sessions, TWO, tmp_path)

        sessions.delete(ONE)

        assert [session.id for session in sessions.sessions()] == [TWO]
        assert not sessions.exists(f"{ONE}/child-1")
        assert sessions.blob(TWO, blob) == b"all of it"
        with pytest.raises(JournalError):
            sessions.blob(TWO, "0" * 64)

    def _write_tree(
        self, sessions: SessionIndex, directory: Path, session: str = ONE
    ) -> None:
        born = ChildBorn("child-1", "call-1", "explore", "Look.")
        record(sessions, session, *talk(directory, "One."), born)
        record(sessions, f"{session}/child-1", *talk(directory, "Look."))

    def _write_blob(self, sessions: SessionIndex, session: str, directory: Path) -> str:
        blob = anyio.run(sessions.store(session).blobs.put, b"all of it")
        events: Sequence[Event] = (
            *talk(directory, "One."),
            Ended("call-1", "done", "a part", full_blob=blob),
            Said("Later."),
        )
        record(sessions, session, *events)
        return blob
