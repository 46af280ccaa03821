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
    """Return a program that does this to the file it is given."""
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
    terminal = start_terminal("talk", PATH=f"{desktop}:{os.environ['PATH']}", DISPLAY=":0")

    terminal.type("look at\x16")
    terminal.until("› look at [image 1]")
    terminal.type(" now" + ENTER)
    terminal.until("image sent: clipboard-1.png")
    terminal.until("One." + "\n\n10 in")
    terminal.wait_for_prompt()
    (tmp_path / "done").touch()
    terminal.type("\x16")
    terminal.until("there is no image on the clipboard")


def test_arrow_keys_move_within_the_lines_before_they_reach_the_history(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    terminal.type("first" + ENTER)
    terminal.until("One." + "\n\n10 in")
    terminal.wait_for_prompt()
    terminal.type("one\x1b\rtwo" + UP + "X")
    terminal.until("oneX")
    terminal.type(UP)
    terminal.wait_until_gone("oneX")
    terminal.until("› first\n\n")
    terminal.type("\x04" * 6 + CTRL_C + "\x04")

    assert terminal.end() == 0


def test_right_or_end_accepts_a_suggestion(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).write_text("\n# then\n+/todos please\n", encoding="utf-8")
    terminal = start_terminal("talk")
    for key in (RIGHT, END):
        terminal.type("/tod")
        terminal.until("› /todos please")
        terminal.type(key + "!")
        terminal.until("› /todos please!")
        terminal.type(CTRL_C)
        terminal.wait_until_gone("please")

    terminal.type("\x04")

    assert terminal.end() == 0


def test_ctrl_r_searches_the_input_history(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    text = "\n# then\n+/todos with something\n\n# then\n+other words\n"
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).write_text(text, encoding="utf-8")
    terminal = start_terminal("talk")
    terminal.type("\x12someth")
    terminal.until("/todos with something")
    terminal.type(ENTER)
    terminal.wait_until_gone("reverse")
    terminal.type(ENTER)
    terminal.until("There are no todos")
    terminal.wait_for_prompt()
    terminal.type("\x12" + CTRL_C)
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


def test_a_paste_does_not_send_the_message_and_a_long_paste_is_folded(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("talk")
    terminal.type(paste("a\nb\x1b[2J\x07\n"))
    terminal.until("› a\n  b")
    terminal.type(paste(LONG) + "\x7f")
    terminal.wait_until_gone("[pasted")
    terminal.type(" " + paste(LONG) + " end")
    terminal.until("  b [pasted 40 lines] end")
    terminal.type(ENTER)
    terminal.until(DONE)
    terminal.type(UP)
    terminal.until("\n  b [pasted 40 lines] end\n\n\n")
    terminal.type(CTRL_C + "\x04")

    assert terminal.end() == 0
    text = (tmp_path / HISTORY).read_text(encoding="utf-8")
    lines = "\n".join(f"+line {n}" for n in range(1, 40))
    assert f"+a\n+b line 0\n{lines} end\n" in text


def test_a_paste_of_megabytes_is_folded_and_input_still_works(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    whole = paste("x" * 60 + "\n\x1b]0;a" + "y\x9b\n" * 400_000)
    writing = Thread(target=terminal.type, args=(whole,))
    writing.start()
    terminal.until("› [pasted 400,001 lines]")
    writing.join()
    terminal.type("Z")
    terminal.until("lines]Z")
    terminal.type(CTRL_C + "\x04")

    assert terminal.end() == 0


def test_lines_pasted_during_a_turn_stay_in_the_draft(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("command")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(paste("one\ntwo\n"))
    terminal.until("› [pasted 2 lines]")
    terminal.type(ESC)
    terminal.until("Type what to do instead.\n\n› [pasted 2 lines]")
    terminal.type(CTRL_C)
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


def test_vi_keys_edit_the_prompt_which_shows_the_vi_mode(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    change = editor(tmp_path, 'echo changed >> "$1"')
    terminal = start_terminal("talk", VI="1", EDITOR=change)
    terminal.until("[i] ›")
    terminal.type("one word" + ESC)
    terminal.until("[n] › one word")
    terminal.type("0dw")
    terminal.until("[n] › word")
    terminal.type("v")
    terminal.until("› wordchanged")
    terminal.type("\x03")
    terminal.wait_until_gone("changed")
    terminal.type("i/vi\r")
    terminal.until("vi keys: Esc, then a command. /vi on|off changes it.")
    terminal.wait_for_prompt("[i] ›")
    terminal.type("/vi off\r")
    terminal.until("Emacs keys.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


def test_combining_characters_and_words_with_umlauts_are_deleted_as_units(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk", VI="1")
    terminal.type("xe\u0301y größe" + "\x1b[D" * 7 + "\x7f")
    terminal.until("[i] › xy größe")
    terminal.type("\x1b[D" + ESC)
    terminal.until("[n] › xy")
    terminal.type('0w"adw')
    terminal.wait_until_gone("größe")
    terminal.type('0"aP')
    terminal.until("[n] › größexy")
    terminal.type("0cwnew")
    terminal.until("[i] › new")
    terminal.type(CTRL_C + "\x04")

    assert terminal.end() == 0


@pytest.mark.parametrize("keys", ["\x18\x05", "\x07"], ids=["ctrl-x ctrl-e", "ctrl-g"])
def test_a_draft_is_edited_in_an_external_editor(
    start_terminal: StartTerminal, tmp_path: Path, keys: str
) -> None:
    terminal = start_terminal(
        "talk", EDITOR=editor(tmp_path, 'sed -i s/words/sentences/ "$1"')
    )
    terminal.type("some words" + keys)
    terminal.until("› some sentences")
    terminal.type(ENTER)
    terminal.until("One.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("named", "message"),
    [("", "No editor is set"), ("exit 3", "ended with exit code 3")],
    ids=["none", "failing"],
)
def test_a_failing_editor_is_reported_and_the_draft_is_kept(
    start_terminal: StartTerminal, tmp_path: Path, named: str, message: str
) -> None:
    failing = editor(tmp_path, named) if named else ""
    terminal = start_terminal("talk", VISUAL="", EDITOR=failing, size=(40, 200))
    terminal.type("some words\x07")
    terminal.until(message)
    terminal.until("› some words")
    terminal.type(CTRL_C + "\x04")

    assert terminal.end() == 0


def test_a_shell_command_of_the_user_gets_the_terminal(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("talk")
    terminal.type("!test -t 0 && stty size; echo 'name?'; read x; echo hi $x" + ENTER)
    terminal.until("\n40 80\nname?\n")
    terminal.type("Bob" + ENTER)
    terminal.until("hi Bob")
    terminal.wait_for_prompt()
    terminal.type(
        "!trap '' HUP; printf '\\033[?25l\\033[31m'; touch begun; sleep 30" + ENTER
    )
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(CTRL_C)
    terminal.until("ended by SIGINT")
    terminal.wait_for_prompt()
    terminal.type("what was that" + ENTER)
    terminal.until("One.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert "\x1b[31m" in terminal.raw
    assert "\x1b[?25h" in terminal.raw.partition("\x1b[?25l\x1b[31m")[2][:200]


def test_a_shell_command_ends_by_sigpipe_when_its_pipe_closes(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    terminal.type("!(yes; echo ended by $? >&2) | head -n 1" + ENTER)
    terminal.until("\ny\nended by 141\n")
    terminal.wait_for_prompt()


def test_a_shell_command_of_the_user_runs_during_a_turn(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("command")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type("!echo beside; cat hello.txt" + ENTER)
    terminal.until("\nbeside\n")
    terminal.until("exit code 1")
    terminal.type(CTRL_C)
    terminal.until("Type what to do instead.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


def test_a_signal_ends_refold_and_the_shell_command_it_runs(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("talk")
    terminal.type("!echo $$ > number; touch begun; sleep 30" + ENTER)
    terminal.wait_for_path(tmp_path / "begun")
    terminal.child.kill(15)

    assert terminal.end() == 128 + 15
    number = int((tmp_path / "number").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_file_names_are_completed_while_typing(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "parser.py").touch()
    terminal = start_terminal("talk")
    terminal.type("look at @enpars")
    terminal.until("engine/parser.py")
    terminal.type("\t" + ENTER)
    terminal.until("› look at @engine/parser.py\n")
    terminal.wait_until_gone("@enpars ")
    terminal.type(" now" + ENTER)
    terminal.until("One.")
    terminal.wait_for_prompt()
    terminal.type("/mod")
    terminal.until("/model [NAME] [save]")
    terminal.type(CTRL_C + "\x04")

    assert terminal.end() == 0


@pytest.mark.parametrize(
    "keys", ["\x1b\r", "\n", "\x1b[27;2;13~", "\x1b[13;2u", "\\\r"],
    ids=["esc enter", "ctrl-j", "shift-enter as xterm", "as kitty", "backslash"],
)  # fmt: skip
def test_keys_insert_a_line_break_in_the_message(
    start_terminal: StartTerminal, keys: str
) -> None:
    terminal = start_terminal("talk")
    terminal.type("one")
    terminal.until("› one")
    terminal.type(keys + "two")
    terminal.until("› one\n  two")
    terminal.type(ENTER)
    terminal.until("One.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0


def test_a_new_theme_changes_the_prompt_colour_at_once(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")

    def prompt_colours() -> tuple[str, str]:
        row = terminal.screen.cursor.y
        return terminal.screen.buffer[row][0].data, terminal.screen.buffer[row][0].fg

    before = prompt_colours()
    terminal.type("/theme dark" + ENTER)
    terminal.until("Theme: dark\n\n›")
    dark = prompt_colours()
    terminal.type("/theme mono" + ENTER)
    terminal.until("Theme: mono\n\n›")
    mono = prompt_colours()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert [before, dark, mono] == [("›", "blue"), ("›", "87afff"), ("›", "default")]


def test_a_slash_command_works_after_esc_and_esc_twice_lists_the_rewind_points(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    terminal.type("first" + ENTER)
    terminal.until("One." + "\n\n10 in")
    terminal.wait_for_prompt()
    terminal.type(ESC + "/tag +x" + ENTER)
    terminal.until("#x")
    terminal.wait_for_prompt()
    terminal.type(ESC + ESC)
    terminal.until("restore:")
    terminal.type(ESC)
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
