"""A small model sees the files that the request names: at first, and when they have changed."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import Raw

from refold.app.policies import policies
from refold.config.settings import Settings
from refold.engine.policies.fulfilment import fulfilled, showing_named_files
from refold.journal.events.kinds import Ended, FilesShown
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.testing.places import BlobsInMemory
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.edit import edit_file
from refold.tools.read import read_file
from refold.tools.turn_control import finish
from tests.engine.house import POLICIES, entries, run, world

SHOWN = "These files are there already:\n\n"


def turn(
    folder: Path,
    request: str,
    *lines: Line,
    rules: Sequence[str] = (),
    unread: Callable[[str], str] = lambda _: "",
) -> tuple[View, MemoryStore]:
    files = DiskFiles(folder, unread=unread)
    given = world(
        ScriptedProvider(*(lines or (done(),))),
        tools=(read_file, edit_file, finish),
        policies=(fulfilled, showing_named_files, *POLICIES),
        rules=tuple(parse(rule, "ask") for rule in rules),
        files=files,
        facts=lambda: Facts(roots=(str(folder),), follow=files.real),
        tool_dependencies={"files": files, "blobs": BlobsInMemory()},
        mode="bypass",
    )
    store = MemoryStore()
    return run(store, given, request), store


def done(answer: str = "Done.") -> Line:
    return [("finish", json.dumps({"answer": answer}))]


def shown(store: MemoryStore) -> list[FilesShown]:
    return [e.event for e in entries(store) if isinstance(e.event, FilesShown)]


def test_it_comes_after_the_request_and_without_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("milk\neggs\n")

    view, store = turn(tmp_path, "What is in list.txt?", done("milk and eggs"))

    text = f"{SHOWN}list.txt (2 lines):\nmilk\neggs\n\nIf the answer stands there, give it now."
    (first,) = shown(store)
    assert first.notes == (text,)
    assert first.files == (("list.txt", sha256(b"milk\neggs\n").hexdigest()),)
    messages = [spoken.message for spoken in view.conversation.messages]
    told = "\n".join(m.text for m in messages if m.role == "user")
    assert told.index("What is in list.txt?") < told.index(text)
    assert view.turn.steps == 1  # the answer needs no call


def test_a_file_that_was_shown_may_be_edited_without_a_further_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.conf").write_text("timeout = 15\n")
    change = {"path": "a.conf", "old": "timeout = 15", "new": "timeout = 60"}

    turn(
        tmp_path,
        "Set timeout to 60 in a.conf.",
        [("edit_file", json.dumps(change))],
        done(),
    )

    assert (tmp_path / "a.conf").read_text() == "timeout = 60\n"


def test_several_files_are_shown_and_missing_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")

    _, store = turn(tmp_path, "Copy a.txt and b.txt into c.txt.")

    (first,) = shown(store)
    assert [name for name, _ in first.files] == ["a.txt", "b.txt"]
    assert first.notes[1] == "Not there yet: c.txt"


@pytest.mark.parametrize(("size", "names"), [(2_000, ("a.txt",)), (2_001, ()), (0, ())])
def test_only_a_small_file_is_shown(
    tmp_path: Path, size: int, names: tuple[str, ...]
) -> None:
    (tmp_path / "a.txt").write_text("x" * size)

    _, store = turn(tmp_path, "Read a.txt.")

    assert [tuple(name for name, _ in each.files) for each in shown(store)] == [names]


def test_a_file_whose_reading_needs_approval_is_not_shown_and_nobody_is_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("secret\n")

    view, store = turn(tmp_path, "Read a.txt.", done(), done(), rules=["read_file(a.txt)"])

    assert shown(store) == [FilesShown()]
    assert "secret" not in repr(entries(store))
    assert view.turn.outcome == "final"


def test_a_file_that_may_not_be_read_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("secret\n")

    _, store = turn(tmp_path, "Read a.txt.", unread=lambda _: "a rule denies it")

    assert shown(store) == [FilesShown()]
    assert "secret" not in repr(entries(store))


def test_a_change_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    change = {"path": "a.txt", "old": "one", "new": "two"}
    again = {"path": "a.txt", "old": "three", "new": "four"}

    _, store = turn(
        tmp_path,
        "Replace one with two in a.txt.",
        [("edit_file", json.dumps(change))],
        [("edit_file", json.dumps(again))],  # fails
        done(),
    )

    assert [each.notes for each in shown(store)] == [
        (f"{SHOWN}a.txt (1 line):\none",),
        ("After that call:\n\na.txt (1 line):\ntwo",),
        (),
    ]


def test_what_only_looked_shows_nothing_anew(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    read = [("read_file", json.dumps({"path": "a.txt"}))]

    _, store = turn(tmp_path, "Read a.txt.", read, done("one"))

    assert len(shown(store)) == 1


def test_a_request_that_names_no_file_shows_none(tmp_path: Path) -> None:
    _, store = turn(tmp_path, "Say hello.")

    assert shown(store) == []


def test_after_a_crash_a_file_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    _, whole = turn(tmp_path, "What is in a.txt?", done("one"))
    every = entries(whole)
    at = next(n for n, e in enumerate(every) if isinstance(e.event, FilesShown))

    cut = MemoryStore(*whole.lines[:at])
    files = DiskFiles(tmp_path)
    given = world(
        ScriptedProvider(done("one")),
        tools=(read_file, finish),
        policies=(showing_named_files, *POLICIES),
        files=files,
        facts=lambda: Facts(roots=(str(tmp_path),), follow=files.real),
        tool_dependencies={"files": files, "blobs": BlobsInMemory()},
    )
    run(cut, given)

    reads = [e.event for e in entries(cut) if isinstance(e.event, Ended)]
    assert sum(read.call_id.startswith("named-") for read in reads) == 1
    assert len(shown(cut)) == 1


@pytest.mark.parametrize("checked", [True, False])
def test_it_is_a_policy_of_the_models_that_need_it(checked: bool) -> None:
    found = policies(Settings(), Raw(b'{"type": "object"}'), checked=checked)

    assert [p.__name__ for p in found].count("showing_named_files") == checked


def test_lines_are_numbered_where_a_question_is_about_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    _, store = turn(tmp_path, "What is on the second line of a.txt?", done("two"))

    assert shown(store)[0].notes[0].startswith(f"{SHOWN}a.txt (2 lines):\n1: one\n2: two\n")
