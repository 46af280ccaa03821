"""Code is highlighted line by line as it would be at once, and loses no character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments import lex
from pygments.lexers import (
    guess_lexer_for_filename,  # pyright: ignore[reportUnknownVariableType] - untyped
)

from refold.views.highlight import Highlighter
from refold.views.styled import Piece

PYTHON = '''@deco
def f(x: int) -> str:
    """A text
    of two lines."""
    return f"{x}" + 'y'  # why
class A(B):
    n = 0x1F
'''


def color_lines(language: str, code: str) -> list[list[Piece]]:
    coloured = Highlighter(language)
    return [
        [piece for piece in coloured.style_line(line) if piece[1].strip()]
        for line in code.split("\n")
    ]


@pytest.mark.parametrize("info", ["py", "python", "Python title=x", "{.py}", "py3,linenos"])
def test_a_language_is_known_by_its_names(info: str) -> None:
    assert color_lines(info, "if x:") == [[("keyword", "if"), ("code", " x:")]]


@pytest.mark.parametrize("info", ["", "nonesuch", "\\x1b[31m", "a" * 500, "../../etc", "*"])
def test_an_unknown_language_is_not_highlighted(info: str) -> None:
    assert color_lines(info, "if x:") == [[("code", "if x:")]]


def test_multiline_string_is_highlighted_in_each_line() -> None:
    rows = color_lines("py", 'x = """a\nif b\n"""\nif c:')

    assert rows[1:] == [
        [("string", "if b")],
        [("string", '"""')],
        [("keyword", "if"), ("code", " c:")],
    ]


@pytest.mark.parametrize("language", ["js", "c", "css", "java", "go", "rust"])
def test_code_after_a_comment_of_several_lines_is_not_highlighted_as_comment(
    language: str,
) -> None:
    rows = color_lines(language, "/* it's\n * if\n */\n")

    assert rows[:3] == [
        [("comment", "/* it's")],
        [("comment", " * if")],
        [("comment", " */")],
    ]


def test_a_comment_start_inside_a_string_does_not_begin_a_comment() -> None:
    rows = color_lines("js", "const a = '/*'\nif")

    assert rows[1] == [("keyword", "if")]


def test_line_by_line_highlighting_equals_highlighting_of_the_full_text() -> None:
    whole = [
        (str(kind), text)
        for kind, text in lex(PYTHON, guess_lexer_for_filename("a.py", PYTHON))
    ]
    keywords = [text for kind, text in whole if kind.startswith("Token.Keyword")]

    rows = color_lines("py", PYTHON)

    texts = [text.strip() for row in rows for style, text in row if style == "keyword"]
    assert texts == keywords
    assert [text for _, text in rows[3]] == ['    of two lines."""']


@given(
    st.sampled_from(
        ("py", "js", "html", "yaml", "console", "diff", "json", "php", "bash", "md")
    ),
    st.lists(
        st.text(st.sampled_from("ab'\"`/*{}<>!-#$\\é中 \t="), max_size=12), max_size=8
    ),
)
def test_highlighting_loses_no_character_of_any_code(
    language: str, lines: list[str]
) -> None:
    coloured = Highlighter(language)

    assert [
        "".join(text for _, text in coloured.style_line(line)) for line in lines
    ] == lines
