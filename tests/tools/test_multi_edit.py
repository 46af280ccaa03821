"""Several edits of one file, and edits of a notebook: all or none, and nothing else."""

import json
from hashlib import sha256
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory, temporary_place
from refold.tools.contract import Reply
from refold.tools.edit import multi_edit
from refold.tools.notebook_edit import notebook_edit
from refold.tools.read import read_file
from refold.values.display import Diff


def write_known_file(place: ToolDirectory, name: str, content: bytes) -> None:
    """A file the session has read."""
    (place.directory / name).write_bytes(content)
    anyio.run(place.use, read_file, {"path": name})


def get(place: ToolDirectory, name: str = "a") -> bytes:
    return (place.directory / name).read_bytes()


def edit(place: ToolDirectory, *edits: tuple[str, str] | tuple[str, str, bool]) -> Reply:
    pairs = [dict(zip(("old", "new", "all"), item, strict=False)) for item in edits]
    return anyio.run(place.use, multi_edit, {"path": "a", "edits": pairs})


def test_each_edit_applies_to_the_result_of_the_previous_one(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"one\ntwo\ntwo\n")

    reply = edit(place, ("one", "two"), ("two", "2", True), ("2\n2\n2", "2\n3"))

    before, after = (sha256(t).hexdigest() for t in (b"one\ntwo\ntwo\n", b"2\n3\n"))
    text = "@@ -1,3 +1,2 @@\n-one\n-two\n-two\n+2\n+3"
    path = str(place.directory / "a")
    assert reply == Reply(
        "Edited a: 5 places (+2 -3).", (Diff(path, "changed", text, before, after),)
    )
    assert get(place) == b"2\n3\n"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([("one", "1"), ("zzzzzz", "2")], "Edit 2 of 2: old was not found in a."),
        ([("one", "1"), ("one", "2")], "Edit 2 of 2: old was not found in a."),
        ([("o", "0")], "Edit 1 of 1: old occurs 2 times in a, at lines 1, 2."),
        ([("one", "1"), ("", "2")], "Edit 2 of 2: old is empty"),
        ([("one", "1"), ("two", "two")], "Edit 2 of 2: old and new are the same"),
        ([("one", "1"), ("1", "one")], "All edits together leave a as it is."),
    ],
)
def test_one_edit_that_cannot_be_applied_cancels_all(
    place: ToolDirectory, edits: list[tuple[str, str]], message: str
) -> None:
    write_known_file(place, "a", b"one\ntwo\n")

    with pytest.raises(ToolFailed) as failure:
        edit(place, *edits)

    assert message in str(failure.value)
    assert str(failure.value).endswith("No edit was done.")
    assert get(place) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "edits", [[], [{"old": "a"}], [{"old": "a", "new": "b", "replace_all": True}]]
)
def test_multi_edit_refuses_invalid_edits(place: ToolDirectory, edits: list[Any]) -> None:
    write_known_file(place, "a", b"a")

    with pytest.raises(ToolFailed, match="'edits'"):
        anyio.run(place.use, multi_edit, {"path": "a", "edits": edits})


def test_a_file_that_was_changed_since_or_not_read_is_not_edited(
    place: ToolDirectory,
) -> None:
    write_known_file(place, "a", b"one")
    (place.directory / "a").write_bytes(b"one, two")
    with pytest.raises(ToolFailed, match="a has changed since you last read it"):
        edit(place, ("one", "1"))

    place.known.clear()
    with pytest.raises(ToolFailed, match="a was not read in this session"):
        edit(place, ("one", "1"))

    (place.directory / "a").unlink()
    with pytest.raises(ToolFailed, match="There is no file a"):
        edit(place, ("one", "1"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"1\r\n1\r\n2"),
        (b"\xef\xbb\xbfone\ntwo", b"\xef\xbb\xbf1\n1\n2"),
        ("\ufeffone\r\ntwo".encode("utf-16-be"), "\ufeff1\r\n1\r\n2".encode("utf-16-be")),
        (b"one\ntwo\xfc", b"1\n1\n2\xfc"),
    ],
)
def test_multi_edit_keeps_line_ends_and_encoding(
    place: ToolDirectory, before: bytes, after: bytes
) -> None:
    write_known_file(place, "a", before)

    edit(place, ("one", "1\n1"), ("two", "2"))

    assert get(place).removesuffix(b"\r\n") == after


CODE = {
    "cell_type": "code", "execution_count": 3, "id": "aa", "metadata": {"x": 1.5},
    "outputs": [{"output_type": "stream", "text": ["1\n"]}], "source": ["a\n", "b"],
}  # fmt: skip
PROSE = {"cell_type": "markdown", "id": "bb", "metadata": {}, "source": ["# ü"]}
LAYOUTS = [{"indent": 1}, {"indent": "\t"}, {"indent": 4, "ensure_ascii": True}, {}, {"separators": (",", ":")}]  # fmt: skip


def book(*cells: object, **layout: Any) -> str:
    whole = {"cells": cells, "metadata": {"k": 1e-7}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, **{"ensure_ascii": False} | layout)


def change(place: ToolDirectory, **arguments: object) -> Reply:
    return anyio.run(place.use, notebook_edit, {"path": "n.ipynb"} | arguments)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_notebook_edit_changes_only_the_given_cell(
    place: ToolDirectory, layout: dict[str, Any], end: str
) -> None:
    """It looks as if the program had written it that wrote it before."""
    write_known_file(place, "n.ipynb", (book(CODE, PROSE, **layout) + end).encode())

    change(place, cell=1, source="x = 'é'\ny")
    once = get(place, "n.ipynb").decode()
    change(place, cell="bb", source="1", kind="code")
    change(place, cell=0, source="first\r\n", mode="insert", kind="raw")
    change(place, cell=3, source="last", mode="insert", kind="markdown")
    change(place, cell="aa", mode="delete")
    reply = change(place, cell=2, source="2")

    new = CODE | {"source": ["x = 'é'\n", "y"], "execution_count": None, "outputs": []}
    assert once == book(new, PROSE, **layout) + end
    now = get(place, "n.ipynb").decode()
    cells = json.loads(now)["cells"]
    assert now == book(*cells, **layout) + end
    assert [(c["cell_type"], c["source"]) for c in cells] == [
        ("raw", ["first\n"]), ("code", ["2"]), ("markdown", ["last"]),
    ]  # fmt: skip
    assert cells[1] == {
        "cell_type": "code", "id": "bb", "metadata": {}, "source": ["2"],
        "execution_count": None, "outputs": [],
    }  # fmt: skip
    assert len({c["id"] for c in cells}) == 3
    assert reply.text.startswith("Changed cell 2 of n.ipynb (+")


def test_all_cells_can_be_deleted_and_inserted_again(place: ToolDirectory) -> None:
    write_known_file(place, "n.ipynb", book(PROSE, indent=1).encode())

    change(place, cell=1, mode="delete")
    empty = get(place, "n.ipynb").decode()
    change(place, cell=0, source="1", mode="insert")

    assert empty == book(indent=1)
    assert get(place, "n.ipynb").decode() == book(
        *json.loads(get(place, "n.ipynb"))["cells"], indent=1
    )


def test_a_notebook_keeps_crlf_byte_order_mark_and_single_string_sources(
    place: ToolDirectory,
) -> None:
    old = {"cell_type": "markdown", "metadata": {}, "source": "one\ntwo"}
    whole = {"nbformat": 4, "nbformat_minor": 2, "cells": [old]}
    text = json.dumps(whole, indent=2).replace("\n", "\r\n")
    write_known_file(place, "n.ipynb", b"\xef\xbb\xbf" + text.encode())

    change(place, cell="1", source="three\nfour")
    change(place, cell=1, source="x", mode="insert", kind="markdown")

    whole["cells"] = [old | {"source": "three\nfour"}, old | {"source": "x"}]
    text = json.dumps(whole, indent=2).replace("\n", "\r\n")
    assert get(place, "n.ipynb") == b"\xef\xbb\xbf" + text.encode()


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (book(CODE), {"cell": 2}, "n.ipynb has no cell '2': give a number from 1 to 1, or one of the ids aa."),
        (book(CODE), {"cell": 0}, "has no cell '0'"),
        (book(CODE), {"cell": -1}, "has no cell '-1'"),
        (book(CODE), {"cell": "zz"}, "has no cell 'zz'"),
        (book(CODE), {"cell": 1, "source": "a\nb"}, "is like that already"),
        (book(CODE), {"cell": 1, "source": ""}, "source is empty"),
        ("[]", {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
        ('{"cells": 3}', {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
        ('{"cells": [{"a": 1}]}', {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
        ('{"cells": [', {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
        ("[" * 100_000, {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
        ("\0\1", {"cell": 1}, "n.ipynb is not a Jupyter notebook"),
    ],
)  # fmt: skip
def test_notebook_edit_refuses_invalid_cells(
    place: ToolDirectory, content: str, arguments: dict[str, object], message: str
) -> None:
    (place.directory / "n.ipynb").write_text(content)
    place.known[str(place.directory / "n.ipynb")] = sha256(content.encode()).hexdigest()

    with pytest.raises(ToolFailed) as failure:
        change(place, **{"source": "x"} | arguments)

    assert message in str(failure.value)
    assert get(place, "n.ipynb") == content.encode()


def test_a_notebook_changed_since_it_was_read_is_not_changed(place: ToolDirectory) -> None:
    write_known_file(place, "n.ipynb", book(CODE).encode())
    (place.directory / "n.ipynb").write_text(book(PROSE))

    with pytest.raises(ToolFailed, match="has changed since you last read it"):
        change(place, cell=1, source="x")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES, st.sampled_from(LAYOUTS), st.integers(1, 3))
def test_notebook_edit_keeps_all_other_content(
    value: object, layout: dict[str, Any], number: int
) -> None:
    cells = [PROSE | {"id": str(n), "metadata": {"v": value}} for n in "xyz"]
    with temporary_place() as place:
        write_known_file(place, "n.ipynb", book(*cells, **layout).encode())

        change(place, cell=number, source="new")

        cells[number - 1]["source"] = ["new"]
        assert get(place, "n.ipynb").decode() == book(*cells, **layout)
