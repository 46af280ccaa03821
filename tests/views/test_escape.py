"""No text of a model, tool or file can control the terminal."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.views.escape import (
    Visible,
    escape_hidden,
    escape_to_one_line,
    hidden_characters,
    visible,
)

NASTY = st.text(
    st.one_of(
        st.sampled_from(
            "\x1b\r\n\t\x07\x08\x7f\x9b\u200b\u200d\u202e\u2066\ufe0f\u20e3\ud83d\ude00"
        ),
        st.sampled_from("ab1 -é中👩\U000e0041"),
        st.characters(),
    ),
    max_size=40,
)

# Counted as format characters, but they are signs that can be seen.
SIGNS = "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]"


@pytest.mark.parametrize(
    ("hostile_text", "shown"),
    [
        ("ok\x1b]52;c;YQ==\adone", r"ok\x1b]52;c;YQ==\x07done"),
        ("safe\rEVIL\x9b2J\b\x0e\x7f", r"safe\rEVIL\x9b2J\x08\x0e\x7f"),
        ("one\r\ntwo\tthree\n", "one\ntwo\tthree\n"),
        ("abc\u202edcba\u2066\u200b", r"abc\u202edcba\u2066\u200b"),
        ("tag \U000e0041", r"tag \U000e0041"),
        ("family 👨\u200d👩, heart ❤\ufe0f", "family 👨\u200d👩, heart ❤\ufe0f"),
        ("🏳\ufe0f\u200d🌈 1\ufe0f\u20e3", "🏳\ufe0f\u200d🌈 1\ufe0f\u20e3"),
        ("❤\ufe0f\u200d\u200d 1\ufe0f2", "❤\ufe0f\u200d" + r"\u200d 1\ufe0f2"),
        ("pass\u200dword \u200d👩", r"pass\u200dword \u200d👩"),
        ("half \ud83d, whole \ud83d\ude00", "half \\ud83d, whole 😀"),
        ("naïve 中文 plain", "naïve 中文 plain"),
    ],
)
def test_visible_escapes_invisible_characters(hostile_text: str, shown: str) -> None:
    assert visible(hostile_text) == shown


@given(NASTY)
def test_escaped_text_has_no_control_or_format_characters(hostile_text: str) -> None:
    for text in (
        visible(hostile_text),
        escape_hidden(hostile_text),
        escape_to_one_line(hostile_text),
    ):
        left = re.sub("[\u200c\u200d\ufe0e\ufe0f\n\t]", "", text)
        left = re.sub(SIGNS, "", left)
        assert not [c for c in left if unicodedata.category(c) in ("Cc", "Cf", "Cs")]


@given(NASTY, st.data())
def test_text_escaped_in_pieces_equals_text_escaped_at_once(
    hostile_text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(hostile_text)), max_size=8)))
    pieces = [
        hostile_text[a:b]
        for a, b in zip([0, *cuts], [*cuts, len(hostile_text)], strict=True)
    ]
    prose = Visible()

    text = "".join(prose.add(piece) for piece in pieces) + prose.end()

    assert text == visible(hostile_text)


def test_exact_escapes_hidden_characters_and_lists_them() -> None:
    assert escape_hidden("ls 👨\u200d👩\n\tcd") == "ls 👨\\u200d👩\n\tcd"
    assert escape_hidden("ls\xa0-l") == "ls\\xa0-l"
    assert hidden_characters("ls 👨\u200d👩 \u202e\x1b\n\t") == [
        "\\u200d",
        "\\u202e",
        "\\x1b",
    ]
    assert escape_to_one_line("a\nb\tc\rd") == r"a\nb\tc\rd"
