"""vi keys in the input of the full screen. `|` is the cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.tui.composer import Composer, clear_field, insert, press_key
from refold.tui.host import Questions
from refold.tui.messages import EditInEditor, Key, Message, Typed, ViKeys
from refold.tui.model import Model
from refold.tui.text_field import Mode, TextField
from refold.tui.update import update
from refold.tui.view import view


def composer_of(marked: str, mode: Mode = "normal") -> Composer:
    cursor = marked.index("|")
    return Composer(TextField(marked.replace("|", "", 1), cursor, vi=True, mode=mode))


def show_cursor(composer: Composer) -> str:
    text, cursor = composer.field.text, composer.field.at
    return f"{text[:cursor]}|{text[cursor:]}"


@pytest.mark.parametrize(
    ("before", "keys", "after"),
    [
        ("one t|wo", "h", "one |two"),
        ("one t|wo", "b", "one |two"),
        ("|one two.x", "w", "one |two.x"),
        ("|one two.x", "ww", "one two|.x"),
        ("|one two.x y", "2W", "one two.x |y"),
        ("|one two", "e", "on|e two"),
        ("|one two", "2e", "one tw|o"),
        ("  one t|wo", "0", "|  one two"),
        ("  one t|wo", "^", "  |one two"),
        ("|one two", "$", "one tw|o"),
        ("one\nt|wo", "gg", "|one\ntwo"),
        ("o|ne\ntwo", "G", "one\n|two"),
        ("o|ne", "x", "o|e"),
        ("|one two", "2x", "|e two"),
        ("|one two", "dw", "|two"),
        ("|one two three", "d2w", "|three"),
        ("|one two three", "2dw", "|three"),
        ("one |two", "D", "one| "),
        ("one t|wo", "db", "one |wo"),
        ("|one two", "de", "| two"),
        ("one\nt|wo\nthree", "dd", "one\n|three"),
        ("one\nt|wo", "dd", "on|e"),
        ("o|ne\ntwo", "ddp", "two\n|one"),
        ("|one two", "ywP", "one| one two"),
        ("|one two", '"ayw"aP', "one| one two"),
        ("|one\ntwo", "yyp", "one\n|one\ntwo"),
        ("|one", "rx", "|xne"),
        ("|one", "3rx", "xx|x"),
        ("|one", "4rx", "|one"),
        ("one t|wo", "xu", "one t|wo"),
        ("|one two", "cwx", "x| two"),
        ("one t|wo", "Sx", "x|"),
        ("one t|wo", "Ax", "one twox|"),
        ("one t|wo", "Ix", "x|one two"),
        ("o|ne", "ax", "onx|e"),
        ("o|ne", "ox", "one\nx|"),
        ("o|ne", "Ox", "x|\none"),
        ("|one", "dz", "|one"),
        ("|one", "10l", "on|e"),
        ("|one two three", "2cwx", "x| three"),
        ("one| two", "cwx", "onex|two"),
        ("say (o|ne two)", "ci(x", "say (x|)"),
        ("|one two", "fwx", "one t|o"),
        ("|one two", "ct x", "x| two"),
        ("|one two", '"adw"aP', "one| two"),
        ("|ab ab ab", "qaxwq@a", "b b |ab"),
        ("o|ne", "~~", "oN|E"),
        ("|one two", "vey$p", "one twoon|e"),
        ("a|👨‍👩‍👧b", "x", "a|b"),
        ("|e\u0301b", "lix", "e\u0301x|b"),
        ("|e\u0301b", "rx", "|xb"),
        ("|日本語", "2x", "|語"),
        ("on|e", "ifo", "onfo|e"),
        ("|größe x", "dw", "|x"),
        ("one größe| x", "bciwy", "one y| x"),
    ],
)
def test_keys_of_normal_mode_edit_as_in_vi(before: str, keys: str, after: str) -> None:
    assert show_cursor(insert(composer_of(before), keys)) == after


def test_esc_leaves_insert_mode_then_cancels_a_command_then_is_not_handled() -> None:
    composer = insert(composer_of("|", "insert"), "word")

    normal = press_key(composer, "esc")

    assert normal is not None
    assert (show_cursor(normal), normal.field.mode) == ("wor|d", "normal")
    result = insert(normal, "2d")
    assert result.field.pending == "2d"
    left = press_key(result, "esc")
    assert left is not None
    assert (left.field.mode, left.field.pending) == ("normal", "")
    assert press_key(left, "esc") is None


def test_after_a_message_is_sent_the_input_is_in_insert_mode() -> None:
    field = clear_field(insert(composer_of("|x"), "2d")).field

    assert (field.text, field.vi, field.mode, field.pending) == ("", True, "insert", "")


def test_v_opens_the_editor_as_in_the_line_terminal() -> None:
    model, _ = update(Model(), ViKeys(True))
    for message in (Typed("one"), Key("esc")):
        model, _ = update(model, message)

    assert update(model, Typed("v"))[1] == (EditInEditor("one"),)


def test_emacs_keys_work_in_vi_insert_mode() -> None:
    composer = composer_of("one two|", "insert")

    assert show_cursor(press_key(composer, "ctrl+a") or composer) == "|one two"
    assert show_cursor(press_key(composer, "alt+b") or composer) == "one |two"


def test_j_and_k_keys_show_earlier_inputs() -> None:
    composer = replace(composer_of("|"), history=("first", "second"))

    assert insert(composer, "k").field.text == "second"
    assert insert(composer, "kk").field.text == "first"
    assert insert(composer, "kkj").field.text == "second"


def test_the_screen_shows_vi_normal_mode_and_vi_keys_can_be_switched() -> None:
    model = Model()
    for message in (ViKeys(True), Typed("one"), Key("esc"), Typed("x")):
        model, _ = update(model, message)
    assert model.composer.field.text == "on"
    assert "normal" in str(view(model).rows)

    model, _ = update(model, ViKeys(False))
    model, _ = update(model, Typed("x"))
    assert model.composer.field.text == "oxn"
    assert "normal" not in str(view(model).rows)


@given(
    some.text("ab .\n日e\u0301👨\u200d", max_size=12),
    some.text('hlwWbBeE0^$gGdcyxXDCsSYpPuriIaAoO23vV~"q@fFtT;,()*#<>jk%nN', max_size=12),
)
def test_no_vi_keys_move_the_cursor_outside_the_text(text: str, keys: str) -> None:
    composer = insert(composer_of(f"|{text}"), keys)

    assert 0 <= composer.field.at <= len(composer.field.text)


def test_asking_whether_vi_keys_are_on_changes_nothing() -> None:
    posted = list[Message]()
    questions = Questions(posted.append, lambda: 0.0)

    states = [questions.use_vi_keys(on) for on in (None, True, None, None, False, None)]

    assert states == [False, True, True, True, False, False]
    assert posted == [ViKeys(True), ViKeys(False)]
