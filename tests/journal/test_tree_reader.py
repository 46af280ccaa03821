"""Following a tree of sessions while it is written: new entries, their node and order."""

from pathlib import Path

from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Entry,
    Event,
    Said,
    SessionStarted,
    TurnEnded,
)
from refold.journal.store.tree_reader import JournalLines, TreeFollower


class Written:
    """A journal that a test extends."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._file, self._head = path / "events.jsonl", Head()

    def add(self, event: Event, at: float = 1.0) -> None:
        entry = Entry(self._head.seq + 1, event, at)
        line, self._head = codec.encode(entry, self._head)
        with self._file.open("ab") as file:
            file.write(line + b"\n")

    def tear(self, torn: bytes) -> None:
        with self._file.open("ab") as file:
            file.write(torn)


def list_news(news: TreeFollower) -> list[tuple[str, str]]:
    return [(node, codec.kind_of(entry.event)) for node, entry in news.new_entries()]


def child_born(name: str) -> ChildBorn:
    return ChildBorn(name, "call-0", "explore", "look")


def test_only_new_complete_entries_are_reported(tmp_path: Path) -> None:
    journal = Written(tmp_path / "s")
    news = TreeFollower(JournalLines(tmp_path / "s"), "root")
    journal.add(SessionStarted("/work"))

    assert list_news(news) == [("root", "SessionStarted")]
    assert list_news(news) == []
    journal.add(Said("x"))
    journal.tear(b'{"h":"0123')
    assert list_news(news) == [("root", "Said")]
    assert list_news(news) == []
    assert news.damages == []


def test_a_child_is_followed_from_its_start_to_its_end(tmp_path: Path) -> None:
    root = Written(tmp_path / "s")
    news = TreeFollower(JournalLines(tmp_path / "s"), "root")
    root.add(child_born("child-1"), at=1.0)

    assert list_news(news) == [("root", "ChildBorn")]  # its journal is not there yet
    child = Written(tmp_path / "s/children/child-1")
    child.add(SessionStarted("/work"), at=2.0)
    child.add(child_born("child-1"), at=3.0)
    below = Written(tmp_path / "s/children/child-1/children/child-1")
    below.add(Said("deep"), at=2.5)
    root.add(Said("beside"), at=2.2)
    assert list_news(news) == [
        ("root/child-1", "SessionStarted"), ("root", "Said"),
        ("root/child-1/child-1", "Said"), ("root/child-1", "ChildBorn"),
    ]  # fmt: skip
    child.add(TurnEnded("answered"), at=4.0)
    root.add(ChildEnded("child-1", "answered", "done"), at=5.0)
    assert list_news(news) == [("root/child-1", "TurnEnded"), ("root", "ChildEnded")]
    child.add(Said("nobody looks there any more"))
    below.add(Said("nor there"))
    assert list_news(news) == []


def test_a_damaged_journal_is_reported_once_and_the_others_are_followed(
    tmp_path: Path,
) -> None:
    root, child = Written(tmp_path / "s"), Written(tmp_path / "s/children/child-1")
    news = TreeFollower(JournalLines(tmp_path / "s"), "root")
    root.add(child_born("child-1"))
    child.tear(b"no line of a journal\n")

    assert list_news(news) == [("root", "ChildBorn")]
    root.add(Said("x"))
    assert list_news(news) == [("root", "Said")]
    assert len(news.damages) == 1
    assert "child-1/events.jsonl: " in news.damages[0]


def test_a_clock_that_goes_back_does_not_change_the_order_of_a_journal(
    tmp_path: Path,
) -> None:
    journal = Written(tmp_path / "s")
    journal.add(SessionStarted("/work"), at=100.0)
    journal.add(Said("x"), at=5.0)
    journal.add(TurnEnded("answered"), at=6.0)

    assert [k for _, k in list_news(TreeFollower(JournalLines(tmp_path / "s"), "root"))] == [
        "SessionStarted", "Said", "TurnEnded",
    ]  # fmt: skip


def test_a_child_name_that_is_a_path_out_of_the_tree_is_not_followed(
    tmp_path: Path,
) -> None:
    Written(tmp_path / "other").add(Said("not of this tree"))
    (tmp_path / "s/children").mkdir(parents=True)
    Written(tmp_path / "s").add(child_born("../../other"))

    assert list_news(TreeFollower(JournalLines(tmp_path / "s"), "root")) == [
        ("root", "ChildBorn")
    ]
