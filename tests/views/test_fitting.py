"""Text fits the screen, however narrow and however wide its letters."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.views.cells import cells, cut, unpadded, wrapped
from refold.views.flow import fitted
from refold.views.folding import folded, text_lines
from refold.views.prose import Prose
from refold.views.styled import Line, Piece, bare, line


def plain(text: str) -> list[Piece]:
    return [("plain", word) for word in text.split()]


MARKDOWN = st.text(st.sampled_from("ab *`#-1.\n~中"), max_size=60)


@given(st.text(st.sampled_from("ab 中e\u0301"), max_size=60), st.integers(2, 20))
def test_wrapping_loses_nothing_and_never_runs_over(text: str, room: int) -> None:
    rows = list(wrapped(text, room))

    assert "".join(rows) == text
    assert all(cells(row) <= room for row in rows)


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [("short", 9, "short"), ("too long", 5, "too …"), ("中文字", 5, "中文…"), ("x", 0, "")],
)
def test_a_cut_says_that_it_is_one(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown


def test_padding_is_counted_so_that_nothing_hides_behind_it() -> None:
    assert unpadded("ls" + " " * 3000 + "; rm x") == "ls … 3000 spaces … ; rm x"
    assert unpadded("ls" + "\n" * 60 + "rm x") == "ls\n… 59 empty lines …\nrm x"


def test_long_output_shows_its_start_and_more_of_its_end() -> None:
    rows = folded([line(str(n)) for n in range(100)], 6)

    assert bare(rows) == "0\n1\n… 95 more lines …\n97\n98\n99"


def test_one_endless_line_takes_three_rows() -> None:
    rows = text_lines("x" * 10_000, 10)

    assert bare(rows) == "xxxxxxxxxx\nxxxxxxxxxx\nxxxxxxxxx…"


def test_words_are_broken_between_words_and_bullets_are_indented() -> None:
    prose = Prose(12)

    shown = prose.add("one two three four\n- five six seven\n") + prose.end()

    assert bare([tuple(shown)]) == "one two\nthree four\n• five six\n  seven\n"


@pytest.mark.parametrize(
    ("said", "pieces"),
    [
        ("## Title", [("heading", "Title")]),
        ("**a b** c", [("strong", "a"), ("strong", "b"), ("plain", "c")]),
        ("run `x  y`", [("plain", "run"), ("code", "x"), ("code", "y")]),
        ("src/**/*.py and 2 ** 3", plain("src/**/*.py and 2 ** 3")),
        ("a `lone tick", plain("a `lone tick")),
        ("```py\nif x:\n```", [("dim", "```py"), ("code", "if x:"), ("dim", "```")]),
    ],
)
def test_a_little_markdown_is_shown_as_what_it_is(said: str, pieces: list[Piece]) -> None:
    prose = Prose()

    shown = prose.add(said) + prose.end()

    assert [piece for piece in shown if piece[1].strip()] == pieces


@given(MARKDOWN, st.integers(1, 7), st.sampled_from((0, 5, 30)))
@example("1**1**", 1, 0)
def test_prose_in_pieces_is_prose_in_one(said: str, size: int, room: int) -> None:
    whole, pieces = Prose(room), Prose(room)

    at_once = whole.add(said) + whole.end()
    shown: list[Piece] = []
    for at in range(0, len(said), size):
        shown += pieces.add(said[at : at + size])
    shown += pieces.end()

    assert letters(shown) == letters(at_once)


@given(MARKDOWN)
def test_without_styles_not_a_letter_is_lost(said: str) -> None:
    prose = Prose(marks=False)

    shown = bare([tuple(prose.add(said) + prose.end())])

    assert [row.rstrip(" ") for row in shown.split("\n")] == [
        row.rstrip(" ") for row in said.split("\n")
    ]


def test_our_own_sentences_are_broken_between_words() -> None:
    sentence: Line = (("bad", "a long sentence"), ("dim", " here"))

    assert bare([fitted(sentence, 8)]) == "a long\nsentence\nhere"
    assert fitted(sentence, 80) == sentence


def letters(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Every letter with its style; a blank has none that can be seen."""
    return [("" if c.isspace() else style, c) for style, text in pieces for c in text]
