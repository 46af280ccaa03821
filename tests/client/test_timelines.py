"""The timeline of a stored session in pages."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from refold.client.timelines import Timelines
from refold.errors import BadInput
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Said,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.session_index import TreeNews
from refold.journal.store.disk import Disk
from refold.journal.store.writer_lock import LockFile, current_writer
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage
from refold.views.timeline import TimelineRow, timeline
from tests.journal.shelves import put_journal

ID = "20260101-000001-0001"


class CountingNews:
    """Counts the entries that are new."""

    def __init__(self, news: TreeNews, counts: list[int]) -> None:
        self._news, self._counts = news, counts
        self.damages = news.damages

    def new_entries(self) -> list[tuple[str, Entry]]:
        entries = self._news.new_entries()
        self._counts.append(len(entries))
        return entries


class CountingDirectory(JournalDirectory):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.counts = list[int]()

    def follow(self, session: str, address: str) -> Any:
        return CountingNews(super().follow(session, address), self.counts)


def steps(count: int, *calls: ToolCall) -> tuple[Event, ...]:
    answer = ModelAnswered(
        Message("assistant", (Text("So far."), *calls)), Usage(), "end", "m"
    )
    return (ModelAsked(), answer) * count


def session(*events: Event) -> tuple[Event, ...]:
    return SessionStarted("/w", "0.1"), Said("Go"), TurnStarted(2), *events


def read_all(timelines: Timelines, limit: int) -> list[str]:
    rows, cursor = list[str](), ""
    while True:
        page = timelines.page(ID, limit, cursor)
        rows += [row.address for row in page.rows]
        cursor = page.following
        if not cursor:
            return rows


def test_pages_of_a_timeline_come_from_one_reading_of_the_journal(tmp_path: Path) -> None:
    home = CountingDirectory(tmp_path)
    put_journal(home, ID, *session(*steps(7), TurnEnded("answered")))
    timelines = Timelines(home, lambda call: call.name)

    assert read_all(timelines, 2) == [f"root/step-{n}" for n in range(1, 8)]
    assert [count for count in home.counts if count] == [3 + 2 * 7 + 1]


def test_a_timeline_reads_only_the_new_events_of_a_growing_journal(tmp_path: Path) -> None:
    home = CountingDirectory(tmp_path)
    put_journal(home, ID, *session(*steps(100)))
    timelines = Timelines(home, lambda call: call.name)
    before = read_all(timelines, 1000)

    put_journal(home, ID, *session(*steps(101)))

    assert read_all(timelines, 1000) == [*before, "root/step-101"]
    assert [count for count in home.counts if count] == [3 + 2 * 100, 2]


def test_a_timeline_that_grows_event_by_event_equals_one_that_is_made_at_once(
    tmp_path: Path,
) -> None:
    home, child = JournalDirectory(tmp_path), f"{ID}/child-1"
    calls = [ToolCall(f"c{n}", "task", Raw(b"{}")) for n in (1, 2)]
    events = session(
        *steps(1, *calls), Started("c2"), ChildBorn("child-1", "c2", "explore", "Look"),
        Ended("c2", "done", "Seen."), ChildEnded("child-1", "answered", "done"),
        Started("c1"), Ended("c1", "failed", "No."), ModelAsked(), ModelFailed("busy"),
        *steps(2), TurnEnded("answered"),
    )  # fmt: skip
    growing = Timelines(home, lambda call: call.name)
    put_journal(home, ID, *events[:1])
    rows = list[TimelineRow]()

    for count in range(1, len(events) + 1):
        put_journal(home, ID, *events[:count])
        if any(isinstance(event, ChildBorn) for event in events[:count]):
            put_journal(home, child, *session(*steps(1)))
        rows = timeline(home.tree(ID), 2.0, lambda call: call.name)
        assert growing.page(ID, 100).rows == tuple(rows)

    assert [row.address for row in rows] == [
        "root/step-1", "root/c1", "root/c2", "root/child-1", "root/step-2", "root/step-3",
        "root/step-4", "root/child-1/step-1",
    ]  # fmt: skip


def test_an_open_model_call_is_running_in_the_timeline_only_while_its_process_lives(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path)
    file = put_journal(home, ID, *session(ModelAsked()))
    timelines = Timelines(home, lambda call: call.name)

    (cut_off,) = timelines.page(ID, 10).rows
    lock = LockFile(file.parent, Disk())
    lock.sign(current_writer(1), (0, ""), 0)
    lock.close()
    (running,) = timelines.page(ID, 10).rows

    assert (cut_off.outcome, cut_off.seconds) == ("cut_off", None)
    assert running.outcome == "running"
    assert running.seconds is not None


def test_a_timeline_in_pages_lists_every_call_although_call_ids_repeat(
    tmp_path: Path,
) -> None:
    put_journal(
        JournalDirectory(tmp_path),
        ID,
        *session(*steps(3, ToolCall("c1", "calc", Raw(b"{}")))),
    )
    timelines = Timelines(JournalDirectory(tmp_path), lambda call: call.name)

    rows = read_all(timelines, 1)

    assert sorted(rows) == ["root/c1"] * 3 + [f"root/step-{n}" for n in (1, 2, 3)]


def test_a_timeline_page_after_an_unknown_address_is_refused(tmp_path: Path) -> None:
    put_journal(JournalDirectory(tmp_path), ID, *session(*steps(1)))

    with pytest.raises(BadInput, match="has the address 'root/none'"):
        Timelines(JournalDirectory(tmp_path), lambda call: call.name).page(
            ID, 1, "root/none"
        )
