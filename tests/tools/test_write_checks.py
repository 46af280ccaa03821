"""Tests of the checks of a change: the file still parses, and most of it stays."""

import pytest

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.apply_patch import apply_patch
from refold.tools.edit import edit_file, multi_edit, write_file
from refold.tools.read import read_file
from refold.values.display import Note

pytestmark = pytest.mark.anyio

BROKEN = [
    ("a.json", '{"a": 1}\n', '{"a": 1\n'),
    ("A.JSON", "[1]\n", "[1,]\n"),
    ("a.toml", "a = 1\n", "a = \n"),
    ("a.py", "x = 1\n", "x = (1\n"),
    ("a.yaml", "a: [1, 2]\n", "a: [1, 2\n"),
]


@pytest.mark.parametrize(("name", "before", "after"), BROKEN)
async def test_write_file_notes_that_a_file_no_longer_parses(
    place: ToolDirectory, name: str, before: str, after: str
) -> None:
    (place.directory / name).write_text(before)
    await place.use(read_file, {"path": name})

    reply = await place.use(write_file, {"path": name, "content": after})

    note = f"{name} could be parsed before this change, and cannot be now: "
    assert note in reply.text
    assert [part.text for part in reply.shown if isinstance(part, Note)] == [
        reply.text.split("\n")[1]
    ]
    assert (place.directory / name).read_text() == after


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("tsconfig.json", "{ // a comment\n}\n", "{ // another\n}\n"),  # no JSON before
        ("a.txt", "{}\n", "{\n"),
        ("a.py", "x = 1\n", "x = '\\d'\n"),
        ("deep.json", "[]\n", "[" * 100_000),  # too deep for the parser
    ],
)
async def test_write_file_notes_nothing_for_valid_or_unknown_syntax(
    place: ToolDirectory, name: str, before: str, after: str
) -> None:
    (place.directory / name).write_text(before)
    await place.use(read_file, {"path": name})

    reply = await place.use(write_file, {"path": name, "content": after})

    assert "parsed" not in reply.text


async def test_every_tool_that_edits_text_notes_broken_syntax(place: ToolDirectory) -> None:
    patch = "*** Begin Patch\n*** Update File: c.py\n@@\n-x = 1\n+x = (\n*** End Patch\n"
    calls = [
        (edit_file, {"path": "a.py", "old": "1", "new": "("}),
        (multi_edit, {"path": "b.py", "edits": [{"old": "1", "new": "("}]}),
        (apply_patch, {"patch": patch}),
    ]
    for name in ("a.py", "b.py", "c.py"):
        (place.directory / name).write_text("x = 1\n")
        await place.use(read_file, {"path": name})

    texts = [(await place.use(tool, arguments)).text for tool, arguments in calls]

    assert ["cannot be now" in text for text in texts] == [True, True, True]


LINES = "".join(f"line {n}\n" for n in range(20))
HALF = "".join(f"line {n}\n" for n in range(10))


async def test_write_file_refuses_to_drop_most_of_an_unread_file(
    place: ToolDirectory,
) -> None:
    path = place.directory / "a.txt"
    path.write_text(LINES)
    await place.use(read_file, {"path": "a.txt"})
    place.unread = frozenset({str(path)})

    with pytest.raises(ToolFailed) as failure:
        await place.use(write_file, {"path": "a.txt", "content": "line 1\n"})

    assert str(failure.value) == (
        "Not written: 19 of the 20 lines of a.txt would be lost, and it was changed since you "
        "last read it. Read it, then write it; or make the same call again if that is meant."
    )
    assert path.read_text() == LINES


@pytest.mark.parametrize(
    ("before", "after", "unread"),
    [
        (LINES, HALF, True),  # half stays
        (LINES[:-8], "", True),  # a short file
        (LINES, "".join(reversed(LINES.splitlines(keepends=True))), True),  # sorted again
        (LINES, "", False),  # it was read
    ],
)
async def test_write_file_overwrites_a_file_that_is_short_mostly_kept_or_read(
    place: ToolDirectory, before: str, after: str, unread: bool
) -> None:
    path = place.directory / "a.txt"
    path.write_text(before)
    await place.use(read_file, {"path": "a.txt"})
    place.unread = frozenset({str(path)} if unread else ())

    await place.use(write_file, {"path": "a.txt", "content": after})

    assert path.read_text() == after
