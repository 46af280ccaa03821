"""Typing at the prompt of a real terminal: keys go through a pty, bytes onto a screen."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal
from tests.terminal.stage import HISTORY

StartTerminal = Callable[..., Terminal]
UP, RIGHT, END = "\x1b[A", "\x1b[C", "\x1b[F"
DONE = " s\n\n›"
LONG = "".join(f"line {n}\n" for n in range(40))

pytestmark = pytest.mark.slow


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.fixture
def start_terminal(tmp_path: Path, compiled: Path) -> Iterator[StartTerminal]:
    terminals: list[Terminal] = []

    def start(*arguments: str, **options: object) -> Terminal:
        options = {"SHELL": "/bin/sh", **options}
        terminal = Terminal(
            STAGE, *arguments, directory=tmp_path, compiled=compiled, **options
        )  # type: ignore[arg-type]
        terminals.append(terminal)
        terminal.until("›")
        return terminal

    yield start
    for terminal in terminals:
        terminal.child.close(force=True)


def editor(directory: Path, line: str) -> str:
    """A program that does this to the file it is given."""
    path = directory / "an-editor"
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_ctrl_v_puts_the_image_on_the_clipboard_into_the_message(
    start_terminal: StartTerminal, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desktop = tmp_path_factory.mktemp("desktop")  # no program of the workspace is run
    desktop.chmod(0o755)
    program = desktop / "xclip"
    program.write_text(
        "#!/bin/sh\n[ -e done ] && exit 1\nprintf '\\211PNG\\r\\n\\032\\nxx'\n"
    )
    program.chmod(0o755)
    at = start_terminal("talk", PATH=f"{desktop}:{os.environ['PATH']}", DISPLAY=":0")

    at.type("look at\x16")
    at.until("› look at [image 1]")
    at.type(" now" + ENTER)
    at.until("image sent: clipboard-1.png")
    at.until("One." + "\n\n10 in")
    at.until_asked()
    (tmp_path / "done").touch()
    at.type("\x16")
    at.until("there is no image on the clipboard")


def test_arrow_keys_move_within_the_lines_before_they_reach_the_history(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    at.type("first" + ENTER)
    at.until("One." + "\n\n10 in")
    at.until_asked()
    at.type("one\x1b\rtwo" + UP + "X")
    at.until("oneX")
    at.type(UP)
    at.until_gone("oneX")
    at.until("› first\n\n")
    at.type("\x04" * 6 + CTRL_C + "\x04")

    assert at.end() == 0


def test_right_or_end_accepts_a_suggestion(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).write_text("\n# then\n+/todos please\n", encoding="utf-8")
    at = start_terminal("talk")
    for key in (RIGHT, END):
        at.type("/tod")
        at.until("› /todos please")
        at.type(key + "!")
        at.until("› /todos please!")
        at.type(CTRL_C)
        at.until_gone("please")

    at.type("\x04")

    assert at.end() == 0


def test_ctrl_r_searches_the_input_history(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    text = "\n# then\n+/todos with something\n\n# then\n+other words\n"
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).write_text(text, encoding="utf-8")
    at = start_terminal("talk")
    at.type("\x12someth")
    at.until("/todos with something")
    at.type(ENTER)
    at.until_gone("reverse")
    at.type(ENTER)
    at.until("There are no todos")
    at.until_asked()
    at.type("\x12" + CTRL_C)
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


def test_a_paste_does_not_send_the_message_and_a_long_paste_is_folded(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("talk")
    at.type(paste("a\nb\x1b[2J\x07\n"))
    at.until("› a\n  b")
    at.type(paste(LONG) + "\x7f")
    at.until_gone("[pasted")
    at.type(" " + paste(LONG) + " end")
    at.until("  b [pasted 40 lines] end")
    at.type(ENTER)
    at.until(DONE)
    at.type(UP)
    at.until("\n  b [pasted 40 lines] end\n\n\n")
    at.type(CTRL_C + "\x04")

    assert at.end() == 0
    text = (tmp_path / HISTORY).read_text(encoding="utf-8")
    lines = "\n".join(f"+line {n}" for n in range(1, 40))
    assert f"+a\n+b line 0\n{lines} end\n" in text


def test_a_paste_of_megabytes_is_folded_and_input_still_works(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    whole = paste("x" * 60 + "\n\x1b]0;a" + "y\x9b\n" * 400_000)
    writing = Thread(target=at.type, args=(whole,))
    writing.start()
    at.until("› [pasted 400,001 lines]")
    writing.join()
    at.type("Z")
    at.until("lines]Z")
    at.type(CTRL_C + "\x04")

    assert at.end() == 0


def test_lines_pasted_during_a_turn_stay_in_the_draft(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("command")
    at.type("go" + ENTER)
    at.answer("y")
    at.until_there(tmp_path / "begun")
    at.type(paste("one\ntwo\n"))
    at.until("› [pasted 2 lines]")
    at.type(ESC)
    at.until("Type what to do instead.\n\n› [pasted 2 lines]")
    at.type(CTRL_C)
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


def test_vi_keys_edit_the_prompt_which_shows_the_vi_mode(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    change = editor(tmp_path, 'echo changed >> "$1"')
    at = start_terminal("talk", VI="1", EDITOR=change)
    at.until("[i] ›")
    at.type("one word" + ESC)
    at.until("[n] › one word")
    at.type("0dw")
    at.until("[n] › word")
    at.type("v")
    at.until("› wordchanged")
    at.type("\x03")
    at.until_gone("changed")
    at.type("i/vi\r")
    at.until("vi keys: Esc, then a command. /vi on|off changes it.")
    at.until_asked("[i] ›")
    at.type("/vi off\r")
    at.until("Emacs keys.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


def test_combining_characters_and_words_with_umlauts_are_deleted_as_units(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk", VI="1")
    at.type("xe\u0301y größe" + "\x1b[D" * 7 + "\x7f")
    at.until("[i] › xy größe")
    at.type("\x1b[D" + ESC)
    at.until("[n] › xy")
    at.type('0w"adw')
    at.until_gone("größe")
    at.type('0"aP')
    at.until("[n] › größexy")
    at.type("0cwnew")
    at.until("[i] › new")
    at.type(CTRL_C + "\x04")

    assert at.end() == 0


@pytest.mark.parametrize("keys", ["\x18\x05", "\x07"], ids=["ctrl-x ctrl-e", "ctrl-g"])
def test_a_draft_is_edited_in_an_external_editor(
    start_terminal: StartTerminal, tmp_path: Path, keys: str
) -> None:
    at = start_terminal("talk", EDITOR=editor(tmp_path, 'sed -i s/words/sentences/ "$1"'))
    at.type("some words" + keys)
    at.until("› some sentences")
    at.type(ENTER)
    at.until("One.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


@pytest.mark.parametrize(
    ("named", "said"),
    [("", "No editor is set"), ("exit 3", "ended with exit code 3")],
    ids=["none", "failing"],
)
def test_a_failing_editor_is_reported_and_the_draft_is_kept(
    start_terminal: StartTerminal, tmp_path: Path, named: str, said: str
) -> None:
    failing = editor(tmp_path, named) if named else ""
    at = start_terminal("talk", VISUAL="", EDITOR=failing, size=(40, 200))
    at.type("some words\x07")
    at.until(said)
    at.until("› some words")
    at.type(CTRL_C + "\x04")

    assert at.end() == 0


def test_a_shell_command_of_the_user_gets_the_terminal(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("talk")
    at.type("!test -t 0 && stty size; echo 'name?'; read x; echo hi $x" + ENTER)
    at.until("\n40 80\nname?\n")
    at.type("Bob" + ENTER)
    at.until("hi Bob")
    at.until_asked()
    at.type("!trap '' HUP; printf '\\033[?25l\\033[31m'; touch begun; sleep 30" + ENTER)
    at.until_there(tmp_path / "begun")
    at.type(CTRL_C)
    at.until("ended by SIGINT")
    at.until_asked()
    at.type("what was that" + ENTER)
    at.until("One.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0
    assert "\x1b[31m" in at.raw
    assert "\x1b[?25h" in at.raw.partition("\x1b[?25l\x1b[31m")[2][:200]


def test_a_shell_command_ends_by_sigpipe_when_its_pipe_closes(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    at.type("!(yes; echo ended by $? >&2) | head -n 1" + ENTER)
    at.until("\ny\nended by 141\n")
    at.until_asked()


def test_a_shell_command_of_the_user_runs_during_a_turn(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("command")
    at.type("go" + ENTER)
    at.answer("y")
    at.until_there(tmp_path / "begun")
    at.type("!echo beside; cat hello.txt" + ENTER)
    at.until("\nbeside\n")
    at.until("exit code 1")
    at.type(CTRL_C)
    at.until("Type what to do instead.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


def test_a_signal_ends_refold_and_the_shell_command_it_runs(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("talk")
    at.type("!echo $$ > number; touch begun; sleep 30" + ENTER)
    at.until_there(tmp_path / "begun")
    at.child.kill(15)

    assert at.end() == 128 + 15
    number = int((tmp_path / "number").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_file_names_are_completed_while_typing(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "parser.py").touch()
    at = start_terminal("talk")
    at.type("look at @enpars")
    at.until("engine/parser.py")
    at.type("\t" + ENTER)
    at.until("› look at @engine/parser.py\n")
    at.until_gone("@enpars ")
    at.type(" now" + ENTER)
    at.until("One.")
    at.until_asked()
    at.type("/mod")
    at.until("/model [NAME] [save]")
    at.type(CTRL_C + "\x04")

    assert at.end() == 0


@pytest.mark.parametrize(
    "keys", ["\x1b\r", "\n", "\x1b[27;2;13~", "\x1b[13;2u", "\\\r"],
    ids=["esc enter", "ctrl-j", "shift-enter as xterm", "as kitty", "backslash"],
)  # fmt: skip
def test_keys_insert_a_line_break_in_the_message(
    start_terminal: StartTerminal, keys: str
) -> None:
    at = start_terminal("talk")
    at.type("one")
    at.until("› one")
    at.type(keys + "two")
    at.until("› one\n  two")
    at.type(ENTER)
    at.until("One.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0


def test_a_new_theme_changes_the_prompt_colour_at_once(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")

    def ink() -> tuple[str, str]:
        row = at.screen.cursor.y
        return at.screen.buffer[row][0].data, at.screen.buffer[row][0].fg

    before = ink()
    at.type("/theme dark" + ENTER)
    at.until("Theme: dark\n\n›")
    dark = ink()
    at.type("/theme mono" + ENTER)
    at.until("Theme: mono\n\n›")
    mono = ink()
    at.type("\x04")

    assert at.end() == 0
    assert [before, dark, mono] == [("›", "blue"), ("›", "87afff"), ("›", "default")]


def test_a_slash_command_works_after_esc_and_esc_twice_lists_the_rewind_points(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    at.type("first" + ENTER)
    at.until("One." + "\n\n10 in")
    at.until_asked()
    at.type(ESC + "/tag +x" + ENTER)
    at.until("#x")
    at.until_asked()
    at.type(ESC + ESC)
    at.until("restore:")
    at.type(ESC)
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0
