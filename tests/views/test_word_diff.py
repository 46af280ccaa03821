"""In a diff the changed words are highlighted."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.views.styled import line, plain_text
from refold.views.word_diff import (
    diff_in_columns,
    diff_lines,
    diff_rows,
    highlight_changes,
    numbered_diff,
)
from refold.views.wrap import cells


def test_changed_words_of_a_line_are_highlighted() -> None:
    rows = diff_lines(
        '@@ -1,3 +1,3 @@\n def f():\n-    return "hi"  # x\n+    return "hello"  # x'
    )

    assert rows == [
        line("@@ -1,3 +1,3 @@", "hunk"),
        line(" def f():", "dim"),
        (("gone", "-"), ("gone", '    return "'), ("gone_word", "hi"), ("gone", '"  # x')),
        (
            ("added", "+"),
            ("added", '    return "'),
            ("added_word", "hello"),
            ("added", '"  # x'),
        ),
    ]


def test_removed_and_added_lines_are_compared_in_order() -> None:
    rows = diff_lines("-one two three\n-four five six\n+one 2 three\n+four five 6\n+seven")

    stand_out = [[text for style, text in row if "_word" in str(style)] for row in rows]
    assert stand_out == [["two"], ["six"], ["2"], ["6"], []]


def test_adjacent_changes_are_compared_separately() -> None:
    rows = diff_lines("-one two\n\\ No newline\n+one 2\n-three four\n+three 4")

    stand_out = [[text for style, text in row if "_word" in str(style)] for row in rows]
    assert stand_out == [["two"], [], ["2"], ["four"], ["4"]]


def test_a_changed_indent_is_highlighted() -> None:
    assert highlight_changes("  return x", "    return x") == (
        (("gone_word", "  "), ("gone", "return x")),
        (("added_word", "    "), ("added", "return x")),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [("alpha beta", "one two"), ("", "one"), ("one", ""), ("a " * 300, "b " * 300)],
)
def test_words_are_not_highlighted_in_lines_with_little_in_common(
    old: str, new: str
) -> None:
    assert highlight_changes(old, new) is None
    assert diff_lines(f"-{old}\n+{new}") == [
        line(f"-{old}", "gone"),
        line(f"+{new}", "added"),
    ]


ROWS = st.lists(st.text(st.sampled_from("+- \\@ab c\x1b\t"), max_size=12), max_size=12)


@given(ROWS)
def test_a_diff_keeps_its_text_and_escapes_control_sequences(rows: list[str]) -> None:
    text = plain_text(diff_lines("\n".join(rows)))

    expected = "\n".join(rows).replace("\x1b", "\\x1b")
    assert text == "\n".join(row.expandtabs(4) for row in expected.split("\n"))


def test_changed_lines_are_syntax_highlighted() -> None:
    result, come = diff_lines("-    return 1  # x\n+    return 12  # x", "a/b.py")

    assert result == (
        ("gone", "-"), ("gone", "    "), ("keyword", "return"), ("gone", " "),
        ("gone_word", "1"), ("gone", "  "), ("comment", "# x"),
    )  # fmt: skip
    assert [piece for piece in come if piece[0] in ("keyword", "added_word", "comment")] == [
        ("keyword", "return"), ("added_word", "12"), ("comment", "# x"),
    ]  # fmt: skip


def test_old_and_new_lines_are_syntax_highlighted_independently() -> None:
    rows = diff_lines('+"""Begins\n-if x:\n+if x:\n if x:\n+"""', "b.py")

    assert [row[1][0] for row in rows if len(row) > 2 and row[1][1] == "if"] == ["keyword"]
    assert rows[2] == (("added", "+"), ("added", "if x:"))


@pytest.mark.parametrize("path", ["notes", "a.unknown", "b.", ""])
def test_lines_of_an_unknown_language_are_coloured_as_added_or_removed(path: str) -> None:
    assert diff_lines("-return\n+if", path) == [
        line("-return", "gone"),
        line("+if", "added"),
    ]


PAIRED = [
    "@@ -7,3 +7,4 @@",
    " same",
    "-old 1",
    "+old 2",
    "+more",
    " end",
    "@@ -90,1 +91,1 @@",
    "-x",
    "+y",
]


def test_old_and_new_lines_are_side_by_side_on_wide_screens() -> None:
    rows = [plain_text([row]).rstrip() for row in numbered_diff(PAIRED, "", 140)]

    assert [re.sub(" {4,}", "    ", row) for row in rows] == [
        " 7  same    │  7  same", " 8 -old 1    │  8 +old 2", "    │  9 +more",
        " 9  end    │ 10  end", " …", "90 -x    │ 91 +y",
    ]  # fmt: skip
    assert len({row.index("│") for row in rows if "│" in row}) == 1


@pytest.mark.parametrize(
    ("rows", "room"), [(PAIRED, 131), (PAIRED, 1_000_000), (["@@ -0,0 +1,1 @@", "+x"], 200)]
)
def test_a_diff_has_one_column_without_room_or_with_one_side(
    rows: list[str], room: int
) -> None:
    assert diff_in_columns(rows, "", room) == []
    assert "│" not in plain_text(numbered_diff(rows, "", room))


@given(ROWS, st.integers(132, 180), st.sampled_from(["a.py", "a.c", ""]))
def test_diff_columns_keep_all_text_and_fit_the_screen(
    rows: list[str], room: int, path: str
) -> None:
    diff = diff_rows("\n".join(rows))

    columns = diff_in_columns(diff, path, room)

    assert all(cells(plain_text([row])) <= room for row in columns)
    if columns:
        for row in diff:
            if row[:1] in ("+", "-"):
                assert row in plain_text(columns)
