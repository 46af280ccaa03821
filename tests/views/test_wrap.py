"""Text fits the screen, however narrow it is and however wide its characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.views.styled import Line, Piece, line, plain_text
from refold.views.wrap import (
    break_lines,
    cells,
    collapse_padding,
    cut,
    fold_lines,
    hard_wrap,
    letters,
    text_lines,
    truncate,
    wrap,
    wrap_line,
    wrap_rows,
)
from refold.views.wrap_code import wrap_code

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
BITS = (
    "ab",
    " ",
    "中",
    "e\u0301",
    FAMILY,
    "\u263a\ufe0f",
    "\U0001f1e9\U0001f1ea",
    "\u1100" * 3,
)
TEXTS = st.lists(st.sampled_from(BITS), max_size=30).map("".join)


@given(TEXTS, st.integers(2, 20))
def test_wrapped_lines_fit_and_contain_all_text(text: str, room: int) -> None:
    rows = list(break_lines(text, room))

    assert "".join(rows) == text
    assert all(cells(row) <= room for row in rows)


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [("short", 9, "short"), ("too long", 5, "too …"), ("中文字", 5, "中文…"), ("x", 0, "")],
)
def test_truncated_text_is_marked(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown


def test_long_padding_is_replaced_by_its_count() -> None:
    assert collapse_padding("ls" + " " * 3000 + "; rm x") == "ls … 3000 spaces … ; rm x"
    assert collapse_padding("ls" + "\n" * 60 + "rm x") == "ls\n… 59 empty lines …\nrm x"


def test_folded_output_shows_its_start_and_more_of_its_end() -> None:
    rows = fold_lines([line(str(n)) for n in range(100)], 6)

    assert plain_text(rows) == "0\n1\n… 95 more lines …\n97\n98\n99"


def test_one_very_long_line_is_truncated_to_three_rows() -> None:
    rows = text_lines("x" * 10_000, 10)

    assert plain_text(rows) == "xxxxxxxxxx\nxxxxxxxxxx\nxxxxxxxxx…"


def test_styled_sentences_are_wrapped_between_words() -> None:
    sentence: Line = (("bad", "a long sentence"), ("dim", " here"))

    assert plain_text([wrap_line(sentence, 8)]) == "a long\nsentence\nhere"
    assert wrap_line(sentence, 80) == sentence


def test_items_separated_by_dots_are_wrapped_at_the_dots() -> None:
    keys: Line = (("strong", "y "), ("plain", "once"), ("strong", " · n "),
                  ("plain", "no, and why"), ("dim", " · ctrl+c stop "))  # fmt: skip

    assert plain_text([wrap_line(keys, 80)]) == "y once · n no, and why · ctrl+c stop "
    assert plain_text([wrap_line(keys, 18)]) == "y once ·\nn no, and why ·\nctrl+c stop "
    wide = line("中 中 中 中 · 中 中 · 中")
    assert plain_text([wrap_line(wide, 18)]) == "中 中 中 中 ·\n中 中 · 中"
    assert plain_text([wrap_line(keys, 12)]) == "y once · n\nno, and why\n· ctrl+c\nstop"


@pytest.mark.parametrize(
    ("letter", "wide"),
    [
        ("a", 1), ("—", 1), ("é", 1), ("e\u0301", 1), ("中", 2), ("한", 2), ("✅", 2),
        (FAMILY, 2), ("\u263a", 1), ("\u263a\ufe0f", 2), ("\U0001f44d\U0001f3fd", 2),
        ("\U0001f1e9\U0001f1ea", 2), ("1\ufe0f\u20e3", 2), ("क्षि", 2), ("\u0301", 0),
    ],
)  # fmt: skip
def test_characters_have_their_terminal_cell_width(letter: str, wide: int) -> None:
    assert cells(letter) == wide
    assert cells(f"x{letter}x") == wide + 2
    assert list(letters(letter)) == [(letter, wide)]


def test_cell_widths_match_wcwidth() -> None:
    from wcwidth import wcwidth

    every = [chr(code) for code in range(0xA0, 0x3000)]

    assert [letter for letter in every if cells(letter) != wcwidth(letter)] == []


@given(TEXTS, st.integers(2, 20))
def test_wrapping_never_splits_a_character(text: str, room: int) -> None:
    whole = [letter for letter, _ in letters(text)]

    rows = list(break_lines(text, room))

    assert [letter for row in rows for letter, _ in letters(row)] == whole


@given(TEXTS, st.integers(2, 20))
def test_truncated_text_fits_its_width(text: str, room: int) -> None:
    assert cells(cut(text, room)) <= room


@given(st.lists(TEXTS, max_size=6), st.integers(2, 30))
def test_wrapped_styled_text_fits_and_loses_no_word(texts: list[str], room: int) -> None:
    pieces: list[Piece] = [
        ("strong" if index % 2 else "plain", t) for index, t in enumerate(texts)
    ]
    whole = "".join(texts)

    rows = [plain_text([row]) for row in wrap(pieces, room)]

    assert "".join(rows).replace(" ", "") == whole.replace(" ", "")
    assert plain_text(hard_wrap(pieces, room)).replace("\n", "") == whole
    assert all(cells(row) <= room for row in rows)
    assert all(cells(plain_text([row])) <= room for row in hard_wrap(pieces, room))
    code = wrap_code(pieces, room)
    assert "".join(plain_text([row]).removeprefix("↳ ") for row in code) == whole
    assert all(cells(plain_text([row])) <= room for row in code)
    assert cells(plain_text([truncate(tuple(pieces), room)])) <= room


def test_rows_that_continue_a_line_of_code_begin_with_a_mark() -> None:
    code: list[Piece] = [("keyword", "return"), ("plain", " first, second # 日本語日本")]

    assert wrap_code(code, 12) == [
        (("keyword", "return"), ("plain", " ")),
        (("dim", "↳ "), ("plain", "first, ")),
        (("dim", "↳ "), ("plain", "second # ")),
        (("dim", "↳ "), ("plain", "日本語日本")),
    ]
    assert plain_text(wrap_code(code, 6)).replace("\n", "") == plain_text([tuple(code)])


def test_a_row_of_code_ends_within_a_word_where_no_blank_is_near() -> None:
    assert plain_text(wrap_code(line("x " + "y" * 14), 10)).split("\n") == [
        "x yyyyyyyy",
        "↳ yyyyyy",
    ]
    assert plain_text(wrap_code(line(" " * 8 + "y" * 6), 10)).split("\n") == [
        "        yy",
        "↳ yyyy",
    ]


def test_wrapping_rows_breaks_a_word_that_is_wider_than_a_row() -> None:
    row = (*line("see ", "dim"), *line("x" * 12), *line(" and more"))

    assert plain_text(wrap_rows(row, 10)).split("\n") == ["see", "x" * 10, "xx and", "more"]


def test_an_address_is_not_wrapped_and_gets_its_own_row() -> None:
    address = "https://example.com/a/long/way"

    rows = wrap([("plain", f"see {address} there")], 12)

    assert plain_text(rows) == f"see\n{address}\nthere"


def test_chinese_text_is_wrapped_anywhere_except_before_punctuation() -> None:
    rows = wrap([("plain", "一二三四，五六七八")], 8)

    assert plain_text(rows) == "一二三\n四，五六\n七八"


def test_wrapping_one_row_keeps_the_spaces_of_other_rows() -> None:
    row: Line = (("dim", "one two three\nfour "), ("person", "\n› "))

    assert plain_text([wrap_line(row, 8)]) == "one two\nthree\nfour \n› "
