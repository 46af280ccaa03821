"""In a diff the changed words are highlighted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.views.styled import bare, line
from refold.views.word_diff import diff_lines, highlight_changes


def test_changed_words_of_a_line_stand_out() -> None:
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


def test_lines_are_set_against_each_other_in_their_order() -> None:
    rows = diff_lines("-one two three\n-four five six\n+one 2 three\n+four five 6\n+seven")

    stand_out = [[text for style, text in row if "_word" in str(style)] for row in rows]
    assert stand_out == [["two"], ["six"], ["2"], ["6"], []]


def test_two_changes_beside_each_other_are_two() -> None:
    rows = diff_lines("-one two\n\\ No newline\n+one 2\n-three four\n+three 4")

    stand_out = [[text for style, text in row if "_word" in str(style)] for row in rows]
    assert stand_out == [["two"], [], ["2"], ["four"], ["4"]]


def test_an_indent_that_changed_stands_out() -> None:
    assert highlight_changes("  return x", "    return x") == (
        (("gone_word", "  "), ("gone", "return x")),
        (("added_word", "    "), ("added", "return x")),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [("alpha beta", "one two"), ("", "one"), ("one", ""), ("a " * 300, "b " * 300)],
)
def test_lines_that_have_little_in_common_are_not_compared(old: str, new: str) -> None:
    assert highlight_changes(old, new) is None
    assert diff_lines(f"-{old}\n+{new}") == [
        line(f"-{old}", "gone"),
        line(f"+{new}", "added"),
    ]


ROWS = st.lists(st.text(st.sampled_from("+- \\@ab c\x1b\t"), max_size=12), max_size=12)


@given(ROWS)
def test_it_says_the_same_words_and_no_order(rows: list[str]) -> None:
    shown = bare(diff_lines("\n".join(rows)))

    expected = "\n".join(rows).replace("\x1b", "\\x1b")
    assert shown == "\n".join(row.expandtabs(4) for row in expected.split("\n"))
