"""Pastes: long ones are shown as a label, and control characters are removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from refold.terminal.input.line_editor.keyboard import Parser, split_at_paste
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.views.strip_escapes import render_lines, without_escapes

LONG = "\n".join(f"line {n}" for n in range(40))


def test_a_long_paste_is_shown_as_a_label_and_sent_in_full() -> None:
    pasted = PasteMarks()

    assert pasted.text_to_show("two\r\nlines\n") == "two\nlines"
    assert pasted.text_to_show(LONG + "\n") == "[pasted 40 lines]"
    assert pasted.text_to_show("x" * 2_000) == "[pasted 2,000 characters]"
    assert pasted.text_to_show("a\nb", max_lines=1) == "[pasted 2 lines]"
    assert pasted.restore_pastes("see [pasted 40 lines] now") == f"see {LONG} now"
    assert pasted.restore_pastes("[pasted 41 lines]") == "[pasted 41 lines]"


def test_pastes_of_the_same_length_have_different_labels() -> None:
    pasted, other = PasteMarks(), LONG.replace("line", "row")

    marks = [pasted.text_to_show(text) for text in (LONG, other, LONG, other)]

    assert marks == ["[pasted 40 lines]", "[pasted 40 lines, 2]"] * 2
    assert pasted.restore_pastes("".join(marks[:2])) == LONG + other
    assert pasted.mark_before("and [pasted 40 lines, 2]") == "[pasted 40 lines, 2]"
    assert pasted.mark_before("and [pasted 40 lines") == ""


def test_label_text_inside_a_paste_is_not_expanded() -> None:
    pasted = PasteMarks()
    pasted.text_to_show(LONG)
    quoting = f"[pasted 40 lines]\n{LONG}"

    assert pasted.restore_pastes(pasted.text_to_show(quoting)) == quoting


@pytest.mark.parametrize(
    ("pasted", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;YQ==\x07\x1b]0;title\x1b\\a", "a"),
        ("\x1b]never ends\nand more", "never ends\nand more"),
        ("\x9b2J\x9d0;x\x9c\x1bPq~\x1b\\b\x1bc", "b"),
        ("a\x00\x08\x7f\x85b\tc", "ab\tc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\u202eb\u2066c\U000e0041d", "abcd"),
        ("\U0001f469\u200d\U0001f4bb \u05d0", "\U0001f469\u200d\U0001f4bb \u05d0"),
        ("half \udcff", "half \ufffd"),
    ],
)
def test_escape_sequences_in_a_paste_are_left_out(pasted: str, left: str) -> None:
    assert without_escapes(pasted) == left


@given(st.text(st.characters(codec=None) | st.sampled_from("\x1b[]\x07\x9b\r\n;m0\\")))
def test_control_characters_are_removed_from_any_paste(text: str) -> None:
    left = without_escapes(text)

    assert not any((c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" for c in left)
    assert without_escapes(left) == left
    left.encode()


@pytest.mark.parametrize(
    ("printed", "stood"),
    [
        ("10%\r 50%\r100%\r\ndone\n", "100%\ndone\n"),
        ("man\x08n", "man"),
        ("\x1b[1mbold\x1b[0m\r\n", "bold\n"),
    ],
)
def test_output_overwritten_by_carriage_returns_is_left_out(
    printed: str, stood: str
) -> None:
    assert render_lines(printed) == stood


@given(st.lists(st.text("ab\x1b[201~\n", max_size=9), max_size=20))
def test_a_paste_received_in_pieces_is_parsed_as_one(pieces: list[str]) -> None:
    whole = "x\x1b[200~" + "".join(pieces) + "\x1b[201~"
    at_once, in_pieces = list[KeyPress](), list[KeyPress]()
    Parser(at_once.append).feed(whole)
    parser = Parser(in_pieces.append)

    for piece in ("x\x1b[2", "00~", *pieces, "\x1b[20", "1~"):
        parser.feed(piece)

    assert in_pieces[:2] == at_once[:2]
    assert at_once[1].data == "".join(pieces).partition("\x1b[201~")[0]


@given(st.text("a\r\x1b[201~", max_size=9), st.integers(0, 30))
def test_an_unfinished_paste_is_passed_to_the_next_parser(text: str, cut: int) -> None:
    """The paste ends at its end mark; the keys after it do not belong to it."""
    text = text.replace("\x1b[201~", "")
    whole = f"x\x1b[200~{text}\x1b[201~y"
    at_once, in_two = list[KeyPress](), list[KeyPress]()
    Parser(at_once.append).feed(whole)
    one, other = Parser(in_two.append), Parser(in_two.append)

    one.feed(whole[:cut])
    other.feed(one.take_unfinished_paste() + whole[cut:])

    assert in_two == at_once
    assert one.take_unfinished_paste() == other.take_unfinished_paste() == ""


def test_a_lone_escape_is_a_key_and_half_a_paste_sequence_is_not() -> None:
    keys = list[KeyPress]()
    parser = Parser(keys.append)

    for typed in ("\x1b", "\x1b[20"):
        parser.feed(typed)
        parser.flush()
    parser.feed("0~a\x1b[201~")

    assert [key.key for key in keys] == [Keys.Escape, Keys.BracketedPaste]


def test_text_typed_before_a_paste_is_kept() -> None:
    before, paste = split_at_paste("abc\x1b[200~one\ntwo\x1b[201~")

    assert (before, paste.parts() if paste else ()) == ("abc", ("one\ntwo", ""))
    assert split_at_paste("no paste") == ("no paste", None)
