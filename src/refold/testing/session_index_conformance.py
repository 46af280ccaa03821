"""The contract of a session index, as tests for other implementations.

class TestMySessions(SessionIndexContract):
    @pytest.fixture
    def sessions(self): return MySessions()
"""

from collections.abc import Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.bundle.unpack import unpack
from refold.journal.catalogue.card_filter import CardFilter, position_of
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import (
    Ended,
    Event,
    Judged,
    Said,
    SessionResumed,
    SessionStarted,
    TurnStarted,
)
from refold.journal.events.setting_events import Renamed, Tagged
from refold.journal.session_index import SessionIndex
from refold.session.recorder import Recorder

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"


def record(sessions: SessionIndex, session: str, *events: Event) -> None:
    """Write these events to the journal of a session."""

    async def write() -> None:
        recorder = Recorder(sessions.store(session))
        await recorder(*events, kept=True)
        await recorder.close()

    anyio.run(write)


def opening_events(directory: Path, text: str) -> tuple[Event, Event]:
    return SessionStarted(str(directory)), Said(text)


def list_ids(sessions: SessionIndex, **wanted: Any) -> list[str]:
    """Return the ids of the listed sessions, newest first. `wanted` are fields of `CardFilter`."""
    cards = sessions.catalogue().newest_first(CardFilter(**wanted))
    return [card.id for card in cards]


class SessionIndexContract:
    """The contract of a session index: a subclass provides the fixture `sessions`."""

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
        record(sessions, TWO, *opening_events(tmp_path, "Two."))
        record(sessions, ONE, *opening_events(tmp_path, "One."))

        assert [session.id for session in sessions.sessions()] == [ONE, TWO]
        assert [card.id for card in sessions.catalogue().cards()] == [ONE, TWO]
        assert (newest := sessions.newest_of(tmp_path)) is not None
        assert newest.id == ONE == sessions.resolve("last", tmp_path).id
        assert sessions.newest_of(tmp_path / "elsewhere") is None

    def test_lists_are_read_in_pages_the_last_written_first(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        ids = [f"2026010{n}-000000-aaaa" for n in (3, 1, 4, 2)]
        for session in ids:
            record(sessions, session, *opening_events(tmp_path, "Hello."))
        catalogue = sessions.catalogue()
        first = list(islice(catalogue.newest_first(CardFilter()), 2))
        record(sessions, ids[0], Said("More."))

        rest = catalogue.newest_first(CardFilter(), after=position_of(first[-1]))

        assert [card.id for card in first] == [ids[3], ids[2]]
        assert [card.id for card in rest] == [ids[1]]
        assert next(catalogue.newest_first(CardFilter())).id == ids[0]

    def test_a_list_has_the_sessions_that_its_filter_wants(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        other, link = tmp_path / "other", tmp_path / "link"
        other.mkdir()
        link.symlink_to(other)
        begun = {
            "plain": opening_events(tmp_path, "Hello."),
            "silent": (SessionStarted(str(tmp_path)),),
            "elsewhere": (*opening_events(other, "Hello."), TurnStarted(2)),
            "pinned": (*opening_events(tmp_path, "Hello."), Tagged(("pinned", "blue"))),
            "archived": (*opening_events(tmp_path, "Hello."), Tagged(("archived",))),
        }
        for name, events in begun.items():
            record(sessions, name, *events)
        record(sessions, "plain/child-1", *opening_events(tmp_path, "Look."))

        assert list_ids(sessions) == ["archived", "pinned", "elsewhere", "plain"]
        assert (
            list_ids(sessions, directory=str(link))
            == list_ids(sessions, open=True)
            == ["elsewhere"]
        )
        assert (
            list_ids(sessions, pinned=True)
            == list_ids(sessions, tags=frozenset(("blue",)))
            == ["pinned"]
        )
        assert (
            list_ids(sessions, archived=True)
            == list_ids(sessions, tags=frozenset(("archived",)))
            == ["archived"]
        )
        assert list_ids(sessions, pinned=False, archived=False) == ["elsewhere", "plain"]
        assert list_ids(sessions, tags=frozenset(("blue", "green"))) == []
        assert list_ids(sessions, everything=True)[-2:] == ["silent", "plain"]

    def test_a_list_has_the_newest_run_of_a_schedule_and_those_that_a_user_named(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        started = SessionStarted(str(tmp_path), schedule=3)
        ids = [f"2026010{n}-000000-aaaa" for n in (1, 2, 3, 4)]
        for session in ids:
            record(sessions, session, started, Said("Write the report."))
            next(sessions.catalogue().newest_first(CardFilter()))
        record(sessions, ids[1], Renamed("the good one"))

        assert list_ids(sessions) == [ids[1], ids[3]]
        assert list_ids(sessions, everything=True) == [ids[1], ids[3], ids[2], ids[0]]
        sessions.delete(ids[3])
        assert list_ids(sessions) == [ids[1], ids[2]]

    def test_a_card_is_found_by_id_and_says_whether_its_session_waits(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        begun = *opening_events(tmp_path, "Hello."), TurnStarted(2)
        child = f"{ONE}/child-1"
        record(sessions, ONE, *begun)
        record(sessions, TWO, *begun)
        record(sessions, ONE, ChildBorn("child-1", "c1", "explore", "Look around"))
        record(sessions, child, *begun, Judged("c2", "ask"))
        catalogue = sessions.catalogue()

        cards = [catalogue.card(id_) for id_ in (ONE, child, "20260103-000000-cccc")]

        assert [card and card.id for card in cards] == [ONE, child, None]
        assert catalogue.asking([ONE, TWO]) == {ONE}
        assert catalogue.asking([TWO]) == catalogue.asking([]) == frozenset()

    def test_a_name_comes_before_the_beginning_of_an_id_or_of_another_name(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        three = "20260103-000000-cccc"
        record(sessions, ONE, *opening_events(tmp_path, "One."), Renamed("Gärten"))
        record(sessions, TWO, *opening_events(tmp_path, "Two."), Renamed("gärten, later"))
        record(sessions, three, *opening_events(tmp_path, "Three."), Renamed("20260101"))

        matches = [sessions.find(text).id for text in ("gärten", "GÄRTEN,", "20260101")]

        assert matches == [ONE, TWO, three]
        with pytest.raises(BadInput, match=f"beginning of the name of 2 sessions: {TWO}"):
            sessions.find("gär")
        with pytest.raises(BadInput, match=f"beginning of 3 sessions: {three}"):
            sessions.find("2026")

    def test_a_session_is_found_by_its_beginning(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *opening_events(tmp_path, "One."))
        record(sessions, TWO, *opening_events(tmp_path, "Two."))

        assert [sessions.find(text).id for text in (ONE, TWO[:8])] == [ONE, TWO]
        with pytest.raises(BadInput):
            sessions.find("2026")

    def test_restoring_the_time_of_a_session_keeps_its_place(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *opening_events(tmp_path, "One."))
        record(sessions, TWO, *opening_events(tmp_path, "Two."))

        set_back = sessions.remember_time(ONE)
        record(sessions, ONE, Said("Later."))
        set_back()

        assert [session.id for session in sessions.sessions()] == [TWO, ONE]

    def test_words_find_the_event_in_which_they_were_said(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *opening_events(tmp_path, "Fix the garden gate."))
        record(sessions, TWO, *opening_events(tmp_path, "Paint it."))

        assert [hit.card.id for hit in sessions.catalogue().search("garden", 5)] == [ONE]
        assert sessions.catalogue().search("bicycle", 5) == []

    def test_events_are_read_as_they_were_written(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        events = opening_events(tmp_path, "One.")
        record(sessions, ONE, *events)

        entries, damage = sessions.entries(ONE)

        assert ([entry.event for entry in entries], damage) == ([*events], "")
        assert sessions.mentions(ONE, b"One.")
        assert not sessions.mentions(ONE, b"Two.")
        assert sessions.entries(TWO)[1] != ""

    def test_a_session_works_where_it_was_resumed(
        self, sessions: SessionIndex, tmp_path: Path
    ) -> None:
        record(sessions, ONE, *opening_events(tmp_path, "One."))
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
        """Write a session with one subagent."""
        born = ChildBorn("child-1", "call-1", "explore", "Look.")
        record(sessions, session, *opening_events(directory, "One."), born)
        record(sessions, f"{session}/child-1", *opening_events(directory, "Look."))

    def _write_blob(self, sessions: SessionIndex, session: str, directory: Path) -> str:
        blob = anyio.run(sessions.store(session).blobs.put, b"all of it")
        events: Sequence[Event] = (
            *opening_events(directory, "One."),
            Ended("call-1", "done", "a part", full_blob=blob),
            Said("Later."),
        )
        record(sessions, session, *events)
        return blob
