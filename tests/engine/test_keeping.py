"""A small model's call is not made if it would lose what the request wants kept."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.json import encode

from refold.engine.policies.fulfilment import showing_named_files
from refold.engine.policies.keeping import keeping
from refold.journal.events.kinds import Ended
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.testing.places import BlobsInMemory
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.tools.edit import edit_file, write_file
from refold.tools.read import read_file
from refold.tools.turn_control import finish
from refold.values.tools import Effect
from tests.engine.house import POLICIES, entries, run, world

LOST = (
    "a.txt would lose these lines: {}. Keep them, and change only what was asked for: "
    'edit_file {{"path":"a.txt","old":"two","new":"two\\nthree"}}.'
)


@tool(Effect.RUN)
async def bash(command: str) -> Reply:
    """A command that does nothing."""
    return Reply("ok")


def refusals(
    folder: Path,
    request: str,
    *calls: tuple[str, Mapping[str, object]],
    before: str = "one\ntwo\n",
) -> list[str]:
    """Why calls were not made. `before` is in a.txt."""
    (folder / "a.txt").write_text(before)
    files = DiskFiles(folder)
    lines: list[Line] = [[(name, encode(given).decode())] for name, given in calls]
    given = world(
        ScriptedProvider(*lines, [("finish", '{"answer":"Done."}')]),
        tools=(read_file, write_file, edit_file, bash, finish),
        policies=(keeping, showing_named_files, *POLICIES),
        rules=tuple(parse(name, "allow") for name in ("write_file", "edit_file", "bash")),
        files=files,
        facts=lambda: Facts(roots=(str(folder),), follow=files.real),
        tool_dependencies={"files": files, "blobs": BlobsInMemory()},
        mode="bypass",
    )
    store = MemoryStore()
    run(store, given, request)
    return [
        e.event.text.removeprefix("Not done: ")
        for e in entries(store)
        if isinstance(e.event, Ended) and e.event.text.startswith("Not done: ")
    ]


@pytest.mark.parametrize(
    ("request_text", "command", "reason"),
    [
        ("Rename a.txt to b.txt.", "rm b.txt", "the request wants b.txt to be there."),
        ("Rename a.txt to b.txt.", "rm -f ./a.txt", "a.txt is to be moved, and this would delete it: use mv."),
        ("Rename a.txt to b.txt.", "cp a.txt b.txt && rm a.txt", None),
        ("Rename a.txt to b.txt.", "mv a.txt b.txt", None),
        ("Add 'three' at the end of a.txt", "true; rm other.txt", "the request does not ask to delete other.txt."),
        ("Add 'three' at the end of a.txt", "echo three > a.txt", LOST.format("one / two")),
        ("Add 'three' at the end of a.txt", "echo three >> a.txt", None),
        ("Move a.txt into the folder b.", "mv a.txt b", "without a folder b this would make a file of that name: use mkdir -p b && mv a.txt b/."),
        ("Move a.txt into the folder b.", "mv a.txt b/", None),  # it fails without the folder
        ("Move a.txt into the folder b.", "mkdir b; mv a.txt b", None),
        ("Find the number in a.txt and write it into b.txt.", "mv ./a.txt b.txt", "a.txt is to stay where it is, and this would move it away: use cp."),
        ("Find the number in a.txt and write it into b.txt.", "mv b.txt a.txt", None),
        ("Delete a.txt.", "rm a.txt", None),
        ("Create b.txt and clean up", "rm -r build", None),
        ("Lösche a.txt", "rm a.txt", None),
    ],
)  # fmt: skip
def test_a_command_that_loses_what_is_to_stay_is_not_run(
    tmp_path: Path, request_text: str, command: str, reason: str | None
) -> None:
    found = refusals(tmp_path, request_text, ("bash", {"command": command}))

    assert found == ([] if reason is None else [reason])


def test_what_was_copied_before_may_be_deleted(tmp_path: Path) -> None:
    copied, deleted = (
        ("bash", {"command": "cp a.txt b.txt"}),
        ("bash", {"command": "rm a.txt"}),
    )

    assert refusals(tmp_path, "Rename a.txt to b.txt.", copied, deleted) == []


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        (("write_file", {"path": "a.txt", "content": "three\n"}), "one / two"),
        (("write_file", {"path": "a.txt", "content": "one\ntwo\nthree\n"}), ""),
        (("edit_file", {"path": "a.txt", "old": "two", "new": "three"}), "two"),
        (("edit_file", {"path": "a.txt", "old": "two", "new": "two\nthree"}), ""),
        (("edit_file", {"path": "a.txt", "old": "nothing of it", "new": "x"}), ""),
    ],
)
def test_a_file_is_not_written_without_the_lines_that_it_is_to_keep(
    tmp_path: Path, call: tuple[str, Mapping[str, object]], lost: str
) -> None:
    found = refusals(tmp_path, "Add 'three' at the end of a.txt", call)

    assert found == ([LOST.format(lost)] if lost else [])


def test_arguments_that_are_none_are_left_to_the_tool(tmp_path: Path) -> None:
    assert refusals(tmp_path, "Create b.txt", ("bash", {"command": 3})) == []
    assert refusals(tmp_path, "Create b.txt", ("bash", {"command": "rm 'b.txt"})) == []


POEM = "roses are red\nviolets are blue\n"
ALL = (
    "a.txt would lose most of its text, and the request does not ask for that. Read it, and "
    "change only what was asked for with edit_file."
)


@pytest.mark.parametrize(
    ("request_text", "content", "reason"),
    [
        ("Fix the colour of violets in a.txt.", "purple\n", ALL),
        (
            "Fix the colour of violets in a.txt.",
            "roses are red\nviolets are purple\n",
            None,
        ),
        ("Fix the letters in a.txt, they should be large.", POEM.upper(), None),
        ("What colour are violets in a.txt?", "blue\n", ALL),
        ("Find the colour of violets in a.txt and write it into b.txt.", "blue\n", ALL),
        (
            "Find the colour of violets in a.txt and write it into b.txt.",
            POEM + "so blue",
            None,
        ),
        ("Write the colour of violets into a.txt.", "blue\n", None),
        ("Replace the poem in a.txt, and fix its title.", "purple\n", None),
        ("Fix a.txt so that it has only the word purple", "purple\n", None),
        ("Korrigiere a.txt: purple", "purple\n", None),  # it is not understood
    ],
)
def test_a_file_does_not_lose_most_of_its_text_by_a_change(
    tmp_path: Path, request_text: str, content: str, reason: str | None
) -> None:
    call = ("write_file", {"path": "a.txt", "content": content})

    found = refusals(tmp_path, request_text, call, before=POEM)

    assert found == ([] if reason is None else [reason])
