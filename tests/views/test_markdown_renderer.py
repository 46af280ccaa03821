"""A response on a screen: Markdown, block by block, however it arrived."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.views.escape import visible
from refold.views.markdown.renderer import MarkdownRenderer
from refold.views.markdown.spans import safe_link
from refold.views.styled import Link, Piece, plain_text
from refold.views.wrap import cells

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
BITS = (
    "a", "b c ", "\n", "\n", "\n\n", "- ", "1. ", "> ", "  ", "    ", "\t", "# ", "---", "```",
    "~~~py", "| a | b |\n|--|--|\n", "| c |", "**", "*", "`", "~~", "[x](http://a.b/c)", "[r]",
    "[r]: http://q", "<http://e.f>", "https://example.com/a/long/way/to/it", "中文字", FAMILY,
    "e\u0301", "\u263a\ufe0f", "\U0001f1e9\U0001f1ea", "def f(): return 'x' # c", "/* c", "</a>",
    "&#27;", "\\", "verylongword" * 4, "क्षि", "word ",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(BITS), max_size=25).map("".join).map(visible)
ROOMS = st.integers(20, 200)
ADDRESS = re.compile(r"[\W\d]*\S*https?://\S+\W*")


def render(text: str, width: int = 60, **manner: bool) -> str:
    prose = MarkdownRenderer(width, **manner)
    return plain_text([tuple(prose.add(text) + prose.end())])


def styles(text: str, **manner: bool) -> list[Piece]:
    prose = MarkdownRenderer(60, **manner)
    return [piece for piece in prose.add(text) + prose.end() if piece[1].strip()]


def test_a_long_line_of_code_is_broken_with_a_mark_or_left_to_the_terminal() -> None:
    text = "- do\n\n  ```\n  " + "x" * 25 + "\n  ```\n"

    marked = render(text, 22).split("\n")
    assert [row for row in marked if "x" in row] == ["  " + "x" * 20, "  ↳ xxxxx"]
    assert "  " + "x" * 25 in render(text, 22, breaks_code=False).split("\n")


@given(TEXTS, st.integers(1, 7), ROOMS, st.booleans())
@example("- x\n- y\n", 1, 20, True)
@example("1**1**", 1, 20, True)
def test_text_rendered_in_pieces_prints_the_same_as_at_once(
    text: str, size: int, room: int, styled: bool
) -> None:
    whole, pieces = (
        MarkdownRenderer(room, styled=styled),
        MarkdownRenderer(room, styled=styled),
    )

    at_once = whole.add(text) + whole.end()
    rendered_pieces: list[Piece] = []
    for start in range(0, len(text), size):
        rendered_pieces += pieces.add(text[start : start + size])
    rendered_pieces += pieces.end()

    assert rendered_pieces == at_once


WORDY = st.lists(
    st.sampled_from(
        (*BITS, "one two three four five six seven ", "**bold words here** ", "some **open ",
         "x* y ", "[link ", "](u) ", "`` ` `` ", " __", "snake_case ", "2*3*4 ", "_em_ ", "=== \n")
    ),
    max_size=60,
).map("".join).map(visible)  # fmt: skip


@given(WORDY, st.integers(1, 40), st.integers(20, 120), st.booleans())
def test_rows_printed_early_equal_rows_of_the_complete_text(
    text: str, size: int, room: int, styled: bool
) -> None:
    pieces = MarkdownRenderer(room, styled=styled)
    rendered_pieces: list[Piece] = []
    for start in range(0, len(text), size):
        rendered_pieces += pieces.add(text[start : start + size])

    assert plain_text([tuple(rendered_pieces + pieces.end())]) == render(
        text, room, styled=styled
    )


@given(TEXTS, ROOMS, st.booleans(), st.booleans())
def test_no_line_is_wider_than_the_screen_except_an_address_on_its_own_line(
    text: str, room: int, styled: bool, links: bool
) -> None:
    rows = render(text, room, styled=styled, links=links).split("\n")

    assert [r for r in rows if cells(r) > room and not ADDRESS.fullmatch(r.strip())] == []


WORDS = st.lists(st.sampled_from("αβγδεζηθ"), min_size=1, max_size=30).map(" ".join)
BLOCKS = st.sampled_from(
    (
        "{}", "# {}", "- {}", "  - {}", "7. {}", "> {}", "```\n{}\n```", "    {}", "**{}**",
        "*{}*", "`{}`", "| {} | x |\n|---|---|\n| y | z |", "{}\n===", "~~{}~~", "- [ ] {}",
    )
)  # fmt: skip


@given(st.lists(st.tuples(BLOCKS, WORDS), min_size=1, max_size=8), st.integers(20, 90))
def test_every_word_of_every_block_is_printed_once_and_in_order(
    blocks: list[tuple[str, str]], room: int
) -> None:
    text = "\n\n".join(block.format(words) for block, words in blocks)

    result = render(text, room)

    expected_words = [word for _, words in blocks for word in words.split()]
    assert re.findall("[α-ω]", result) == expected_words


@given(TEXTS)
def test_without_markdown_marks_the_text_is_printed_unchanged_but_for_trailing_spaces(
    markdown: str,
) -> None:
    text = render(markdown, 0, marks=False)

    assert [row.rstrip(" ") for row in text.split("\n")] == [
        row.rstrip(" ") for row in markdown.split("\n")
    ]


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("# A *title*\n\nwords\nand more", "A title\n\nwords\nand more\n"),
        ("- a\n- b\n  - c\n\n    d\n3. e", "• a\n• b\n  • c\n\n    d\n3. e\n"),
        ("> a\n> > b\n\nc", "│ a\n│ │ b\n\nc\n"),
        ("> > a\n> >\n> > b", "│ │ a\n│ │\n│ │ b\n"),
        ("1. > a\n   >\n   > - b", "1. │ a\n   │\n   │ • b\n"),
        ("1. x\n   ```sh\n   ls\n   ```\n2. y", "1. x\n   ```sh\n   ls\n   ```\n2. y\n"),
        ("a\n\n\n\nb", "a\n\nb\n"),
        ("***\n", "─" * 40 + "\n"),
        ("a  \nb\\\nc", "a\nb\nc\n"),
        ("-\n- a", "•\n• a\n"),
        ("- [x] done", "• [x] done\n"),
        ("&lt;b&gt; <i>x</i> &copy;", "<b> <i>x</i> ©\n"),
        ("    code\n\n    more", "    code\n\n    more\n"),
        ("```\nno end", "```\nno end\n"),
    ],
)
def test_every_kind_of_block_is_laid_out(markdown: str, shown: str) -> None:
    assert re.sub(" +\n", "\n", render(markdown)) == shown


@pytest.mark.parametrize(
    ("markdown", "pieces"),
    [
        ("# Title", [("title", "Title")]),
        ("Title\n===", [("title", "Title")]),
        ("## `a` title #", [("code", "a"), ("heading", "title")]),
        ("### Title", [("subheading", "Title")]),
        ("###### Title", [("subheading", "Title")]),
        ("**a b** c", [("strong", "a b"), ("plain", "c")]),
        ("*a **b***", [("emphasis", "a"), ("strong", "b")]),
        ("run `x  y`", [("plain", "run"), ("code", "x  y")]),
        ("src/**/*.py and 2 ** 3", [("plain", "src/**/*.py and 2 ** 3")]),
        ("a `lone tick", [("plain", "a `lone tick")]),
        ("~~x~~", [("dim", "~~x~~")]),
        ("see https://a.b/c_d_e.", [("plain", "see"), ("link", "https://a.b/c_d_e"),
                                    ("plain", ".")]),
        ("```\nif x:\n```", [("dim", "```"), ("code", "if x:"), ("dim", "```")]),
        ("```py\nif x:\n```", [("dim", "```py"), ("keyword", "if"), ("code", "x:"),
                              ("dim", "```")]),
    ],
)  # fmt: skip
def test_inline_markdown_is_styled_by_its_kind(markdown: str, pieces: list[Piece]) -> None:
    assert [(style, text.strip()) for style, text in styles(markdown)] == pieces


def test_without_styles_markdown_is_laid_out_and_emphasis_marks_stay() -> None:
    text = "# A\n\nB\n---\n### C\n- **b** *c* `d`\n\n> e\n\n```py\nf\n```\n\n***"

    result = render(text, 8, styled=False, symbols=False)

    assert (
        result
        == "# A\n\n## B\n### C\n- **b**\n  *c*\n  `d`\n\n> e\n\n```py\nf\n```\n\n--------\n"
    )


@pytest.mark.parametrize(
    ("markdown", "plain", "linked"),
    [
        ("[x](https://a.b/c)", "x (https://a.b/c)", "x"),
        ("[a.de](https://a.de/c)", "a.de (https://a.de/c)", "a.de"),
        ("[a.de](https://evil.example)", "a.de (https://evil.example)",
         "a.de (https://evil.example)"),
        ("[go to a.de](https://evil.example)", "go to a.de (https://evil.example)",
         "go to a.de (https://evil.example)"),
        ("<https://a.b>", "https://a.b", "https://a.b"),
        ("<me@a.b>", "me@a.b", "me@a.b"),
        ("[x](src/a.py)", "x (src/a.py)", "x (src/a.py)"),
        ("[x](javascript:f)", "[x](javascript:f)", "[x](javascript:f)"),
        ("[](https://a.b)", "https://a.b", "https://a.b"),
        ("https://аpple.com", "https://аpple.com (https://xn--pple-43d.com)",
         "https://аpple.com (https://xn--pple-43d.com)"),
        ("![pic](https://a.b)", "![pic](https://a.b)", "![pic](https://a.b)"),
        ("[r]: https://a.b\n\n[r]", "[r]: https://a.b\n\nr (https://a.b)",
         "[r]: https://a.b\n\nr"),
        ("[r]\n\n[r]: https://a.b", "[r]\n\n[r]: https://a.b", "[r]\n\n[r]: https://a.b"),
    ],
)  # fmt: skip
def test_a_link_shows_its_address_unless_the_terminal_opens_links(
    markdown: str, plain: str, linked: str
) -> None:
    assert render(markdown) == f"{plain}\n"
    assert render(markdown, links=True) == f"{linked}\n"


def test_all_words_of_a_link_carry_its_address_where_the_terminal_opens_links() -> None:
    pieces = styles("[the `code` **here**](https://a.b/ö)", links=True)

    assert pieces == [(Link("https://a.b/%C3%B6"), "the code here")]


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://a.b/c?d=e#f", True), ("http://a", True), ("file:///a/b", True),
        ("mailto:a@b", True), ("javascript:x", False), ("ftp://a", False), ("src/a.py", False),
        ("https://a b", False), ("https://a\x1b", False), ("https://a\x07", False),
        ("https://ä", False), ("https://", False), ("https://" + "a" * 3_000, False),
    ],
)  # fmt: skip
def test_only_safe_addresses_become_terminal_links(url: str, may: bool) -> None:
    assert safe_link(url) == (url if may else "")


TABLE = "| name | what it *is* |\n|---|--:|\n| 中文 | a |\n| `x` | two words |\n"


def test_a_table_that_fits_is_printed_in_columns() -> None:
    assert render(TABLE) == (
        "name │ what it is\n─────┼───────────\n中文 │          a\nx    │  two words\n"
    )


def test_table_cells_are_wrapped_to_fit_the_screen() -> None:
    long = "| key | value |\n|---|---|\n| a | one two three four |\n"

    assert render(long, 20) == (
        "key │ value\n────┼───────────────\na   │ one two three\n    │ four\n"
    )


def test_an_address_in_a_table_cell_is_wrapped_like_any_word() -> None:
    text = render("| where |  |\n|---|---|\n| https://example.com/a/b/c/d | x |", 20)

    assert text == (
        "where            │\n─────────────────┼──\nhttps://example. │ x\ncom/a/b/c/d      │\n"
    )


def test_a_table_too_wide_for_columns_is_printed_row_by_row() -> None:
    wide = "|".join(f"a long head {n}" for n in range(4))
    table = f"{wide}\n-|-|-|-\nan entry|another entry||last of them\n"

    text = render(table, 24)

    assert text == (
        "a long head 0: an entry\na long head 1: another\nentry\na long head 2:\n"
        "a long head 3: last of\nthem\n"
    )


def test_a_table_row_with_too_many_cells_loses_no_cell() -> None:
    assert render("|a|b|\n|-|-|\n|1|2|3|") == "a │ b │\n──┼───┼──\n1 │ 2 │ 3\n"


def test_code_is_printed_line_by_line_and_text_when_its_paragraph_ends() -> None:
    prose = MarkdownRenderer(60)

    came = [
        plain_text([tuple(prose.add(t))])
        for t in ("```py\nx", " = 1\ny", "\n```\nso", " it")
    ]

    assert came == ["```py\n", "x = 1\n", "y\n```\n", ""]
    assert prose.pending_text == "so it"
    assert plain_text([tuple(prose.add("\n\n"))]) == "so it\n"
    assert prose.pending_text == ""


def test_a_new_width_applies_from_the_next_block() -> None:
    room = 20
    prose = MarkdownRenderer(lambda: room)

    pieces = prose.add("one two three four five six seven eight nine ten ")
    room = 10
    pieces += prose.add("eleven twelve\n\none two three four") + prose.end()

    assert plain_text([tuple(pieces)]) == (
        "one two three four\nfive six seven eight\nnine ten eleven\ntwelve\n\n"
        "one two\nthree four\n"
    )


@pytest.mark.parametrize(
    ("markdown", "early"),
    [
        ("one two three four five six seven eight", "one two three four\n"),
        ("- one two three four five six seven eight", "• one two three four\n"),
        ("> one two three four five six seven eight", "│ one two three four\n"),
        ("one **two three** four five six seven eight", "one two three four\n"),
        ("one `two three` four five six seven eight", "one two three four\n"),
        ("one **two three four five six seven eight", ""),
        ("one [two three four five six seven eight", ""),
        ("one `two three four five six seven eight", ""),
        ("[a]: one two three four five six seven eight", ""),
        ("| one two three four | five six seven eight", ""),
        ("# one two three four five six seven eight", ""),
    ],
)
def test_a_row_is_printed_as_soon_as_later_text_cannot_change_it(
    markdown: str, early: str
) -> None:
    prose = MarkdownRenderer(20)

    printed_rows = [prose.add(letter) for letter in f"{markdown} "]
    before = plain_text([tuple(piece for pieces in printed_rows for piece in pieces)])

    assert before[: len(early) or None] == early
    rest = plain_text([tuple(prose.end())])
    assert (before + rest).split() == render(markdown, 20).split()


def test_paragraph_with_a_late_underline_stays_a_paragraph() -> None:
    assert render("one two three four five six\n===\nx", 20) == (
        "one two three four\nfive six\nx\n"
    )
    assert render("one two\n===\nx", 20) == "one two\nx\n"


def test_an_endless_line_is_printed_in_parts_and_stays_one_block() -> None:
    prose = MarkdownRenderer(60)

    early = prose.add("- " + "word " * 2_000)
    text = plain_text([tuple(early + prose.add("# not a title\nx") + prose.end())])

    assert len(early) > 100
    assert text.count("word") == 2_000
    assert text.startswith("• word word")
    assert "# not a title" in text.replace("\n", " ").replace("   ", " ")


def test_deeply_nested_text_fits_a_narrow_screen() -> None:
    text = render("> " * 14 + "- " * 14 + "1. word\n", 20)

    assert [row for row in text.split("\n") if cells(row) > 20] == []
    assert "word" in text
