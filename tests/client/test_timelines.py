"""The timeline of a stored session in pages."""

from pathlib import Path

import pytest
from msgspec import Raw

from refold.client.timelines import Timelines
from refold.errors import BadInput
from refold.journal.events.kinds import (
    Event,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from refold.journal.home import JournalDirectory
from refold.journal.state.session_tree import Node
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage
from tests.journal.shelves import put_journal

ID = "20260101-000001-0001"


class CountingDirectory(JournalDirectory):
    trees = 0

    def tree(self, session: str) -> Node:
        self.trees += 1
        return super().tree(session)


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


def test_pages_of_a_timeline_are_taken_from_one_reading(tmp_path: Path) -> None:
    home = CountingDirectory(tmp_path)
    put_journal(home, ID, *session(*steps(7), TurnEnded("answered")))
    timelines = Timelines(home, lambda call: call.name)

    assert read_all(timelines, 2) == [f"root/step-{n}" for n in range(1, 8)]
    assert home.trees == 1


def test_a_journal_that_has_grown_is_read_again(tmp_path: Path) -> None:
    home = CountingDirectory(tmp_path)
    put_journal(home, ID, *session(*steps(1)))
    timelines = Timelines(home, lambda call: call.name)
    before = read_all(timelines, 10)

    put_journal(home, ID, *session(*steps(2)))

    assert before == ["root/step-1"]
    assert read_all(timelines, 10) == ["root/step-1", "root/step-2"]
    assert home.trees == 2


def test_pages_end_where_a_model_uses_the_id_of_a_call_again(tmp_path: Path) -> None:
    put_journal(
        JournalDirectory(tmp_path),
        ID,
        *session(*steps(3, ToolCall("c1", "calc", Raw(b"{}")))),
    )
    timelines = Timelines(JournalDirectory(tmp_path), lambda call: call.name)

    rows = read_all(timelines, 1)

    assert sorted(rows) == ["root/c1"] * 3 + [f"root/step-{n}" for n in (1, 2, 3)]


def test_a_page_behind_a_call_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    put_journal(JournalDirectory(tmp_path), ID, *session(*steps(1)))

    with pytest.raises(BadInput, match="has the address 'root/none'"):
        Timelines(JournalDirectory(tmp_path), lambda call: call.name).page(
            ID, 1, "root/none"
        )
