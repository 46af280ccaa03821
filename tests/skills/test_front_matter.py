"""Parsing the front matter of a SKILL.md, and its errors."""

import subprocess
import sys

import pytest

from refold.skills.front_matter import BadFrontMatter, FrontMatter, split


def values(front: str) -> dict[str, str | None]:
    return split(f"---\n{front}\n---\nBody.\n").values


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("name: a\ndescription: Words.", {"name": "a", "description": "Words."}),
        ("name: 'a'\ndescription: \"It's.\"", {"name": "a", "description": "It's."}),
        ("description: Two: with a colon.", {"description": "Two: with a colon."}),
        ("# a comment\n\nname:   a  ", {"name": "a"}),
        ("name: a\nmetadata:\n  author: b\n  x: [1]", {"name": "a", "metadata": None}),
        ("name: a\nallowed-tools:\n- Read\n- Bash", {"name": "a", "allowed-tools": None}),
        ("name: a\nallowed-tools: [Read, Bash]", {"name": "a", "allowed-tools": None}),
        ("description: >\n  Two\n  lines.", {"description": "Two lines."}),
        ("description: |\n  Two\n  lines.", {"description": "Two\nlines."}),
        ('description: "With \\"marks\\"."', {"description": 'With "marks".'}),
        ("description: Begins here\n  and goes on.", {"description": "Begins here and goes on."}),
        ("name: [a]", {"name": None}),
        ("license: MIT # really\nname: a", {"license": None, "name": "a"}),
        ("description: It # not this", {"description": "It"}),
        ("name:", {"name": ""}),
    ],
)  # fmt: skip
def test_front_matter_values_are_parsed(
    front: str, expected: dict[str, str | None]
) -> None:
    data = values(front)

    assert data.keys() == expected.keys()
    for key in {"name", "description"} & data.keys():  # refold reads no other value
        assert data[key] == expected[key]


def test_front_matter_accepts_crlf_and_a_byte_order_mark() -> None:
    parts = split("\ufeff---\r\nname: a\r\n---\r\n\r\nBody.\r\n")

    assert parts == FrontMatter({"name": "a"}, "Body.")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# No front matter", 1, "does not begin with a line ---"),
        ("", 1, "does not begin with a line ---"),
        ("---\nname: a\n", 1, "has no end"),
        ("---\n" + "x: y\n" * 9000 + "---\n", 1, "more than 16,384 characters"),
        ("---\nname: a\n\tx: [\n---\n", 3, "this is not YAML"),
        ("---\nname: a\nname: {b\n---\n", 3, "this is not YAML"),
        ("---\njust words\n---\n", 2, "no lines `key: words`"),
        ("---\nname: " + "[" * 5000 + "\n---\n", 2, "more than 100 brackets"),
        ("---\n? ? ? ? x: |\n" + "? " * 8000 + "\n---\n", 2, "this is not YAML"),
    ],
)
def test_front_matter_error_names_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(BadFrontMatter) as caught:
        split(text)

    assert caught.value.line == line
    assert words in caught.value.what


def test_plain_front_matter_needs_no_yaml() -> None:
    """Loading it takes longer than reading all the skills that come with refold."""
    code = (
        "import sys; from refold.skills.front_matter import split\n"
        "split('---\\nname: a\\ndescription: Words: more.\\nmetadata:\\n  a: b\\n---\\n')\n"
        "print('yaml' in sys.modules)\n"
        "split('---\\ndescription: >\\n  Words.\\n---\\n')\n"
        "print('yaml' in sys.modules)"
    )

    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert output.split() == ["False", "True"]
