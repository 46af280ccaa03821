"""The ends of Markdown blocks, found line by line as a parser of whole texts finds them."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from refold.views.markdown.blocks import BlockParser, Leaf

Found = tuple[str, str, str]  # its container, its kind, its text
# Tabs and four blanks are left out: markdown-it reads four blanks before a ">" or
# before lazy continuation lines in another way than CommonMark.
STARTS = (
    "",
    "- ",
    "* ",
    "1. ",
    "2) ",
    "> ",
    ">",
    "  ",
    " ",
    "   ",
    "10. ",
    "-",
    "# ",
    "### ",
)
WORDS = ("a", "b c", "```", "~~~", "```py", "---", "===", "***", "", "-", "#", "##", "1.")
LINES = st.tuples(st.sampled_from(STARTS), st.sampled_from(STARTS), st.sampled_from(WORDS))
NEAR = LINES.map("".join).filter(lambda line: "    " not in line)
TEXTS = st.lists(NEAR, min_size=1, max_size=9).map("\n".join)
CELLS = st.sampled_from(("a", "`b`", "", "c d", r"e \| f"))
ROWS = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5)


@given(TEXTS)
def test_blocks_found_line_by_line_equal_those_of_the_full_text(text: str) -> None:
    parser = MarkdownIt("commonmark", {"html": False})
    parser.disable(["reference", "html_block"])

    known = list(of_tokens(parser.parse(text)))

    assert list(of_leaves(leaves(text))) == known


@given(
    ROWS,
    st.sampled_from(("before\n", "", "- ")),
    st.sampled_from(("\n\nafter", "\n# x", "")),
)
def test_a_table_block_has_exactly_the_lines_of_the_table(
    rows: list[list[str]], before: str, after: str
) -> None:
    lines = [f"| {' | '.join(row)} |" for row in [*rows[:1], ["--", ":-:"], *rows[1:]]]
    indent = "  " if before == "- " else ""
    text = before + f"\n{indent}".join(lines) + after

    tables = [leaf for leaf in leaves(text) if leaf.kind == "table"]

    assert [leaf.lines for leaf in tables] == [tuple(lines)]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a | b\n---", "heading"),
        ("a | b\n--|--", "table"),
        ("a\n--|--", "words"),
        ("x\na | b\n--|--\nc\n> d", "words table words"),
        ("a | b\n--|--\nc\n    d", "table code"),
        ("    code\n\n    more", "code code code"),
        ("a\n    not code", "words"),
        ("\tcode", "code"),
        ("```\n> x", "fence code closed"),
        ("> ```\n> x\ny", "fence code closed words"),
        ("<div>\n*x*\n</div>", "words"),
        ("[a]: http://b", "words"),
        ("-     x", "code"),
        ("-\n  x", "words"),
        ("-\n\n  x", "words words"),
    ],
)
def test_ambiguous_markdown_has_one_block_kind(text: str, kinds: str) -> None:
    assert " ".join(leaf.kind for leaf in leaves(text)) == kinds


def test_list_items_are_numbered_from_the_first_number() -> None:
    signs = [
        leaf.around[0].sign for leaf in leaves("3. a\n3. b\n   - x\n3. c\n\ny\n\n1. d")[:4]
    ]

    assert signs == ["3.", "4.", "4.", "5."]


def test_a_paragraph_is_emitted_as_soon_as_the_next_line_begins_a_list_item() -> None:
    blocks = BlockParser()
    blocks.add_line("- one")

    early = [blocks.end_paragraph_early(start) for start in ("-", "- ", "- t", "- two")]

    assert [[leaf.lines for leaf in item] for item in early] == [[], [], [("one",)], []]
    assert [leaf.lines for leaf in (*blocks.add_line("- two"), *blocks.end())] == [("two",)]


def test_an_endless_paragraph_is_emitted_in_parts() -> None:
    blocks = BlockParser()

    counts = [len(blocks.add_line("word " * 20)) for _ in range(1_000)]

    assert sum(counts) == 24


def leaves(text: str) -> list[Leaf]:
    blocks = BlockParser()
    return [
        leaf for line in text.split("\n") for leaf in blocks.add_line(line)
    ] + blocks.end()


def of_leaves(leaves: list[Leaf]) -> Iterator[Found]:
    fenced: list[str] | None = None
    for leaf in leaves:
        around = "".join("i" if container.sign else "q" for container in leaf.around)
        match leaf.kind:
            case "fence":
                fenced = []
            case "code" if fenced is not None:
                fenced.append(leaf.lines[0])
            case "closed":
                yield around, "fence", strip_lines("\n".join(fenced or []))
                fenced = None
            case "rule":
                yield around, "rule", ""
            case "words" if leaf.lines == ("",):
                pass
            case kind:
                level = str(leaf.level or "")
                yield around, kind + level, strip_lines("\n".join(leaf.lines))


def of_tokens(tokens: list[Token]) -> Iterator[Found]:
    around, kind = "", ""
    for token in tokens:
        match token.type:
            case "blockquote_open":
                around += "q"
            case "list_item_open":
                around += "i"
            case "blockquote_close" | "list_item_close":
                around = around[:-1]
            case "paragraph_open":
                kind = "words"
            case "heading_open":
                kind = f"heading{token.tag[1]}"
            case "inline":
                yield around, kind, strip_lines(token.content)
            case "hr":
                yield around, "rule", ""
            case "fence":
                yield around, "fence", strip_lines(token.content)
            case _:
                pass


def strip_lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n")).rstrip("\n")
