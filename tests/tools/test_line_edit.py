"""The edits of small models: lines at the end, at a place, and words for others."""

import anyio
import pytest

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.contract import Tool
from refold.tools.line_edit import append, insert_line, replace_text
from refold.tools.read import read_file
from refold.values.display import Diff


def use(place: ToolDirectory, tool: Tool, **arguments: object) -> str:
    return anyio.run(place.use, tool, {"path": "a", **arguments}).text


def put(place: ToolDirectory, content: bytes) -> None:
    (place.directory / "a").write_bytes(content)


def get(place: ToolDirectory) -> bytes:
    return (place.directory / "a").read_bytes()


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (b"one\n", "two", b"one\ntwo\n"),
        (b"one", "two", b"one\ntwo\n"),
        (b"one\n", "\ntwo\n", b"one\ntwo\n"),
        (b"", "two\nthree", b"two\nthree\n"),
        (b"one\r\n", "two", b"one\r\ntwo\r\n"),
    ],
)
def test_a_line_is_appended_on_a_line_of_its_own(
    place: ToolDirectory, before: bytes, text: str, after: bytes
) -> None:
    put(place, before)

    said = use(place, append, text=text)

    assert get(place) == after
    assert "two" in said


def test_appending_to_a_file_that_is_not_there_makes_it(place: ToolDirectory) -> None:
    use(place, append, text="one")

    assert get(place) == b"one\n"


@pytest.mark.parametrize(
    ("line", "after"), [(1, b"x\none\ntwo\n"), (2, b"one\nx\ntwo\n"), (3, b"one\ntwo\nx\n")]
)
def test_a_line_is_inserted_before_the_one_with_that_number(
    place: ToolDirectory, line: int, after: bytes
) -> None:
    put(place, b"one\ntwo\n")
    anyio.run(place.use, read_file, {"path": "a"})

    use(place, insert_line, line=line, text="x")

    assert get(place) == after


def test_a_line_number_of_a_file_that_was_not_read_is_refused_but_the_first(
    place: ToolDirectory,
) -> None:
    put(place, b"one\ntwo\n")

    with pytest.raises(ToolFailed, match="not read in this session"):
        use(place, insert_line, line=2, text="x")
    use(place, insert_line, line=1, text="x")

    assert get(place) == b"x\none\ntwo\n"


def test_a_line_beyond_the_end_is_refused_with_what_is_possible(
    place: ToolDirectory,
) -> None:
    put(place, b"one\n")
    anyio.run(place.use, read_file, {"path": "a"})

    with pytest.raises(ToolFailed, match="a has 1 lines: line must be 1 to 2"):
        use(place, insert_line, line=9, text="x")


def test_text_is_replaced_everywhere_without_reading_before(place: ToolDirectory) -> None:
    put(place, b"a soup\na soup, please\r\n")

    said = use(place, replace_text, old="soup", new="salad")

    assert get(place) == b"a salad\na salad, please\r\n"
    assert said == "Changed a. It reads there now:\n1\ta salad\n2\ta salad, please"


def test_text_that_is_not_there_is_refused_with_the_nearest(place: ToolDirectory) -> None:
    put(place, b"tomato soup\n")

    with pytest.raises(ToolFailed, match="nearest text is at line 1"):
        use(place, replace_text, old="tomatto soup", new="x")

    assert get(place) == b"tomato soup\n"


def test_the_change_is_shown_as_a_diff(place: ToolDirectory) -> None:
    put(place, b"one\n")

    reply = anyio.run(place.use, append, {"path": "a", "text": "two"})

    (diff,) = reply.shown
    assert isinstance(diff, Diff)
    assert (diff.kind, diff.text) == ("changed", "@@ -1,1 +1,2 @@\n one\n+two")


@pytest.mark.parametrize("tool", [append, insert_line])
def test_nothing_is_added_where_the_text_is_empty(place: ToolDirectory, tool: Tool) -> None:
    put(place, b"one\n")
    more = {"line": 1} if tool is insert_line else {}

    with pytest.raises(ToolFailed, match="text is empty"):
        use(place, tool, text="\n", **more)
