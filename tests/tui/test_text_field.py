"""Editing the input: what keys make of the text, and how it is laid out."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from refold.tui.editing import edit_field, insert_paste, insert_text, press_key
from refold.tui.editing import type_into as typed_letters
from refold.tui.text_field import TextField, clear, field_of, lay_out
from refold.views.wrap import cells
from tests.tui.sessions import WORDS

KEYS = (
    "left", "right", "home", "end", "ctrl+left", "ctrl+right", "backspace", "delete", "ctrl+w",
    "alt+backspace", "alt+d", "ctrl+u", "ctrl+k", "ctrl+y", "ctrl+_",
)  # fmt: skip


def type_keys(text: str, *keys: str) -> TextField:
    """`|` is where the cursor stands."""
    cursor = text.index("|")
    field = TextField(text.replace("|", ""), cursor)
    for key in keys:
        result = edit_field(field, key)
        assert result is not None
        field = result
    return field


def show_cursor(field: TextField) -> str:
    return f"{field.text[: field.at]}|{field.text[field.at :]}"


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("one two|", "ctrl+w", "one |"),
        ("one two|", "alt+backspace", "one |"),
        ("one.two|", "alt+backspace", "one.|"),
        ("one |two", "alt+d", "one |"),
        ("one\ntwo|", "ctrl+u", "one\n|"),
        ("o|ne\ntwo", "ctrl+k", "o|\ntwo"),
        ("one\nt|wo", "home", "one\n|two"),
        ("o|ne\ntwo", "end", "one|\ntwo"),
        ("one tw|o", "ctrl+left", "one |two"),
        ("|one two", "ctrl+right", "one| two"),
        ("a👨‍👩‍👧|b", "backspace", "a|b"),
        ("a|e\u0301b", "delete", "a|b"),
        ("日|本", "left", "|日本"),
        ("one\n|two", "left", "one|\ntwo"),
        ("one|\ntwo", "right", "one\n|two"),
        ("o|ne\ntwo", "alt+>", "one\ntwo|"),
        ("one |two", "alt+u", "one TWO|"),
        ("o|ne", "ctrl+t", "no|e"),
        ("über größe|", "alt+b", "über |größe"),
        ("|e\u0301te\u0301 x", "alt+f", "e\u0301te\u0301| x"),
    ],
)
def test_each_editing_key_changes_text_and_cursor_as_in_its_row(
    before: str, key: str, after: str
) -> None:
    assert show_cursor(type_keys(before, key)) == after


def test_yank_inserts_cut_text_and_undo_reverts_an_edit() -> None:
    cut = type_keys("keep this|", "ctrl+w")

    assert (
        show_cursor(edit_field(insert_text(cut, "and "), "ctrl+y") or cut)
        == "keep and this|"
    )
    assert show_cursor(edit_field(cut, "ctrl+_") or cut) == "keep this|"
    assert edit_field(cut, "f9") is None
    assert edit_field(TextField(), "backspace") is None


def test_up_and_down_keep_the_column_and_stop_at_the_first_and_last_line() -> None:
    field = TextField("long line\nab\nlast", 6)

    below = edit_field(field, "down") or field
    assert show_cursor(below) == "long line\nab|\nlast"
    assert show_cursor(edit_field(below, "down") or field) == "long line\nab\nlast|"
    assert show_cursor(edit_field(below, "up") or field) == "long l|ine\nab\nlast"
    above = press_key(field, "up")
    assert above is not None
    assert (above.field.at, above.beyond) == (6, -1)


@given(WORDS, some.integers(2, 12), some.integers(0, 40))
def test_layout_does_not_depend_on_the_cursor_position(
    text: str, room: int, at: int
) -> None:
    text = f"{text}\nplain words\n"

    rows = lay_out(TextField(text, min(at, len(text))), room).rows

    assert rows == lay_out(TextField(text, selected=((0, 1),)), room).rows


def test_yank_and_rotate_insert_the_last_cuts_in_turn() -> None:
    field = type_keys("one two|", "ctrl+w")
    field = typed_letters(edit_field(field, "ctrl+u") or field, "> ").field

    yanked = edit_field(field, "ctrl+y") or field
    assert show_cursor(yanked) == "> one |"
    assert show_cursor(edit_field(yanked, "alt+y") or field) == "> two|"
    assert show_cursor(edit_field(clear(yanked), "ctrl+y") or field) == "one |"


def test_selected_text_is_highlighted_and_can_be_cut() -> None:
    field = type_keys("one |two three", "ctrl+space", "alt+f")

    assert lay_out(field, 6).selected == ((4, 6), (0, 1), (0, 0))
    assert show_cursor(edit_field(field, "ctrl+w") or field) == "one | three"


def test_alt_and_a_number_repeat_the_next_key_and_a_macro_repeats_many() -> None:
    assert show_cursor(type_keys("|abcdef", "alt+3", "ctrl+f")) == "abc|def"
    recorded = typed_letters(type_keys("|ab cd", "ctrl+x"), "(").field
    for key in ("ctrl+d", "ctrl+f", "ctrl+x"):
        recorded = edit_field(recorded, key) or recorded
    ended = typed_letters(recorded, ")").field
    again = typed_letters(edit_field(ended, "ctrl+x") or ended, "e").field

    assert (show_cursor(ended), show_cursor(again)) == ("b| cd", "bc|d")


def test_alt_dot_inserts_the_last_word_of_an_earlier_input() -> None:
    edit = press_key(field_of("see "), "alt+.", ("open a.py", "run b.py"))

    assert edit is not None
    assert edit.field.text == "see b.py"


def test_a_paste_that_was_cut_can_be_yanked_into_the_next_input() -> None:
    text = "line\n" * 30 + "end"
    cut = edit_field(insert_paste(TextField(), text), "ctrl+u")

    assert cut is not None
    assert (edit_field(clear(cut), "ctrl+y") or cut).whole == text


def test_a_long_paste_is_shown_as_a_label_deleted_as_one_character_and_sent_in_full() -> (
    None
):
    text = "\n".join(f"line {n}" for n in range(20))
    field = insert_paste(insert_text(TextField(), "see "), f"{text}\x1b[31m\n")

    assert lay_out(field, 80).rows == ("see [pasted 20 lines]",)
    assert field.whole == f"see {text}"
    assert (edit_field(field, "backspace") or field).whole == "see "
    assert insert_paste(TextField(), "two\r\nlines").text == "two\nlines"


@given(WORDS, some.lists(some.sampled_from(KEYS), max_size=12), some.integers(2, 30))
def test_the_cursor_is_always_in_the_text_and_no_row_is_too_wide(
    text: str, keys: list[str], room: int
) -> None:
    field = field_of(text.replace("\x00", ""))
    for key in keys:
        field = edit_field(field, key) or field

        out = lay_out(field, room)

        assert 0 <= field.at <= len(field.text)
        assert all(cells(row) <= max(room, 2) for row in out.rows)
        assert out.row < len(out.rows)
        assert out.cell <= max(room, 2)


@given(WORDS)
def test_undo_goes_back_through_every_edit(text: str) -> None:
    field = TextField()
    for letter in text:
        field = insert_text(field, letter)

    for _ in text:
        field = edit_field(field, "ctrl+_") or field

    assert (field.text, field.at) == ("", 0)


def test_an_editing_command_that_fails_leaves_the_text_unchanged() -> None:
    field = type_keys("a\nb|", "alt+-")

    assert show_cursor(edit_field(field, "up") or TextField()) == "a\nb|"
