"""Stories on the full screen, through a pty: what a person types, and what they see."""

import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, Terminal
from tests.tui.conftest import HELLO, PROGRAM, OpenTerminal, png
from tests.tui.screen_images import NBSP, STORIES, take_image

pytestmark = pytest.mark.slow

EDIT = {
    "text": "I change it.",
    "calls": [
        {"tool": "read_file", "arguments": {"path": "hello.py"}},
    ],
}  # fmt: skip
CHANGE = {
    "calls": [
        {"tool": "edit_file", "arguments": {"path": "hello.py", "old": '"hi"', "new": '"hello"'}},
    ]
}  # fmt: skip
DONE = {"text": "Now hello.py says **hello**."}
PLAN = {
    "calls": [
        {"tool": "exit_plan_mode", "arguments": {"plan": "# Greet better\n\n1. Change the word"}},
    ]
}  # fmt: skip
ASK = {
    "calls": [
        {"tool": "ask_user", "arguments": {"questions": [
            {"question": "Which word?", "options": [{"label": "hello"}, {"label": "hey"}]},
        ]}},
    ]
}  # fmt: skip
UP, DOWN, PAGE_UP = "\x1b[A", "\x1b[B", "\x1b[5~"
F7, F8 = "\x1b[18~", "\x1b[19~"
CTRL_S, CTRL_P, CTRL_T, CTRL_V, CTRL_Z = "\x13", "\x10", "\x14", "\x16", "\x1a"


def wait_until_ready(terminal: Terminal) -> None:
    terminal.until("? keys")


def test_an_edit_is_approved_in_the_full_screen(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(EDIT, CHANGE, DONE)
    wait_until_ready(terminal)
    terminal.type("say hello" + ENTER)
    terminal.until("Edit hello.py?")
    terminal.until('+    return "hello"')
    terminal.answer("y")
    terminal.until("Now hello.py says hello.")
    terminal.until("changed hello.py +1 -1")
    terminal.type("\x04")

    assert terminal.end() == 0
    assert 'return "hello"' in (tmp_path / "work" / "hello.py").read_text()
    assert "To resume: refold -c" in terminal.text


def test_a_refusal_with_its_reason_reaches_the_model(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(EDIT, CHANGE, {"text": "Then I leave it."})
    wait_until_ready(terminal)
    terminal.type("say hello" + ENTER)
    terminal.until("Edit hello.py?")
    terminal.answer("n")
    terminal.until("why not?")
    terminal.type("too loud" + ENTER)
    terminal.until("Then I leave it.")

    assert "too loud" in terminal.text
    assert (tmp_path / "work" / "hello.py").read_text() == HELLO


def test_a_plan_is_approved_and_a_question_is_answered(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(PLAN, ASK, DONE, flags=("--permission-mode", "plan"))
    wait_until_ready(terminal)
    terminal.type("plan it" + ENTER)
    terminal.until("Greet better")
    terminal.answer("y")
    terminal.until("Which word?")
    terminal.until("or type an answer")
    terminal.type("2" + ENTER)
    terminal.until("Now hello.py says hello.")


def test_esc_stops_a_turn_and_the_next_message_is_answered(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "word " * 400, "pause": 0.05}, {"text": "I go on."})
    wait_until_ready(terminal)
    terminal.type("talk" + ENTER)
    terminal.until("word word word")
    terminal.type(ESC)
    terminal.wait_until_gone("Esc stops")
    terminal.type("continue please" + ENTER)
    terminal.until("I go on.")


def test_messages_typed_during_a_turn_are_shown_as_queued_until_delivered(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "word " * 8, "pause": 0.05}, {"text": "Second turn."})
    wait_until_ready(terminal)
    terminal.type("talk" + ENTER)
    terminal.until("word")
    terminal.type("and then this" + ESC + ENTER)
    terminal.until("after this turn: and then this")
    terminal.until("Second turn.")


def test_panels_search_and_the_command_palette_open_by_their_keys(
    open_terminal: OpenTerminal,
) -> None:
    todos = {
        "text": "Needle in here.",
        "calls": [{"tool": "todo_write", "arguments": {"todos": [
            {"subject": "Mend the door", "status": "in_progress"},
        ]}}],
    }  # fmt: skip
    terminal = open_terminal(todos, {"text": "\n\n".join(f"line {n}" for n in range(60))})
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until("line 59")
    terminal.type(CTRL_T)
    terminal.until("Todos")
    terminal.until("Mend the door")
    terminal.type(CTRL_T)
    terminal.wait_until_gone("Mend the door")
    terminal.type(CTRL_S + "needle")
    terminal.until("Needle in here.")
    terminal.type(ESC)
    terminal.until("? keys")
    time.sleep(0.2)
    terminal.type(CTRL_P)
    terminal.until("Enter chooses")
    terminal.type("context us" + ENTER)
    terminal.until("› /context")


def test_a_draft_is_stored_with_its_session_and_restored_on_return(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "Here I am."}, {"text": "Again."})
    wait_until_ready(terminal)
    terminal.type("hello" + ENTER)
    terminal.until("Here I am.")
    terminal.type("half a thought")
    terminal.until("half a thought")
    terminal.type(CTRL_P)
    terminal.until("Enter chooses")
    terminal.type("/clear" + ENTER)
    terminal.until("A new session.")
    terminal.wait_until_gone("half a thought")
    terminal.type("/resume" + ENTER)
    terminal.until("Enter chooses")
    terminal.type(ENTER)
    terminal.until("Here I am.")
    terminal.until("half a thought")


def test_panels_show_the_task_board_and_the_output_of_a_background_command(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    log = tmp_path / "work" / "log"
    log.write_text("it begins\n")
    work = {
        "calls": [
            {"tool": "task_create", "arguments": {"subject": "Mend the door"}},
            {"tool": "background_run", "arguments": {"command": "tail -f log"}},
        ]
    }
    terminal = open_terminal(
        work, {"text": "It runs."}, flags=("--allow", "background_run")
    )
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until("It runs.")
    terminal.type(F7)
    terminal.until("Mend the door")
    _run_in_shell(tmp_path, "tasks", "add", "Paint the wall")
    terminal.until("Paint the wall")
    terminal.type(F8)
    terminal.until("background-1 runs")
    terminal.until("it begins")
    terminal.type("\t" + ENTER)
    terminal.until("Esc closes")
    with log.open("a") as file:
        file.write("and goes on\n")
    terminal.until("and goes on")
    terminal.type(ESC)
    terminal.wait_until_gone("Esc closes")
    terminal.type("\tx")
    terminal.until("background-1 stopped")
    terminal.type("\x04")


def test_a_shell_command_runs_in_the_transcript_while_the_person_types(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "I see."})
    wait_until_ready(terminal)
    terminal.type("!seq 40; read word; echo two; exit 3" + ENTER)
    terminal.until("    40")
    terminal.until("Esc stops it")
    terminal.type("my draft")
    terminal.until("› my draft")
    terminal.type("\x15")  # empties the input
    terminal.until("› Ask anything")
    terminal.type(ENTER)  # gives the command the terminal
    terminal.wait_until_gone("? keys")  # the numbers have scrolled it away
    terminal.type("word" + ENTER)
    wait_until_ready(terminal)
    terminal.until("exit code 3")
    terminal.until("more lines; Ctrl+O shows them")

    assert "two" in terminal.text
    assert "Esc stops it" not in terminal.text


@pytest.mark.parametrize(
    "command",
    ["stty -echo; read x; stty echo", r"printf '\e[?1049h'; read x; printf '\e[?1049l'"],
)
def test_a_shell_command_that_reads_from_the_terminal_gets_the_terminal(
    open_terminal: OpenTerminal, command: str
) -> None:
    terminal = open_terminal()
    wait_until_ready(terminal)
    terminal.type(f"!seq 40; {command}; echo got $x{ENTER}")
    terminal.wait_until_gone("? keys")  # the numbers have scrolled it away
    terminal.type("secret" + ENTER)
    wait_until_ready(terminal)

    terminal.until("! seq 40")
    assert "› secret" not in terminal.text


def test_a_shell_command_is_stopped_by_esc(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal()
    wait_until_ready(terminal)
    terminal.type("!echo begun; sleep 60" + ENTER)
    terminal.until("└ begun")
    terminal.type(ESC)

    terminal.until("ended by SIGINT")


def test_a_rule_is_added_edited_and_removed_in_the_list_of_permissions(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "Hello."})
    wait_until_ready(terminal)
    terminal.type("/permissions" + ENTER)
    terminal.until("+ add a rule")
    terminal.type(ENTER)
    terminal.until("New rule")
    terminal.type("ask always" + ENTER)
    terminal.until("Rule, such as")
    terminal.type("bash(make *)" + ENTER)
    terminal.until("ask     bash(make *)  always, in this folder")
    terminal.type("make" + ENTER)
    terminal.until("remove it")
    terminal.type(ENTER)
    terminal.wait_until_gone("remove it")
    terminal.type("\x7f\x7f\x7f x *)" + ENTER)
    terminal.until("ask     bash(make x *)")
    terminal.type("make" + ENTER)
    terminal.until("remove it")
    terminal.type(DOWN + ENTER)
    terminal.until("Removed: ask bash(make x *)")
    terminal.wait_until_gone("ask     bash(make x *)")


def _run_in_shell(tmp_path: Path, *text: str) -> None:
    """Another process in the same project."""
    environ = {**os.environ, "REFOLD_HOME": str(tmp_path / "home")}
    subprocess.run(
        [sys.executable, "-m", "refold", *text], cwd=tmp_path / "work", env=environ, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


SLEEP = {"calls": [{"tool": "bash", "arguments": {"command": "sleep 60"}}]}


def resume_after_kill(
    open_terminal: OpenTerminal, call: dict[str, object], running: str, mode: str
) -> Terminal:
    """Return the screen of a session whose process was killed while `running` was shown."""
    terminal = open_terminal(call, flags=("--permission-mode", mode))
    wait_until_ready(terminal)
    terminal.type("go" + ENTER)
    terminal.until(running)
    terminal.child.kill(signal.SIGKILL)
    terminal.child.wait()
    return open_terminal({"text": "Resumed and done."}, flags=("-c",))


@pytest.mark.parametrize(
    ("typed", "end"),
    [
        (ESC, "Type what to do instead."),
        ("/continue" + ENTER, "Resumed and done."),
        ("well?" + ENTER, "Resumed and done."),
    ],
    ids=["stopped", "continued", "message"],
)
def test_a_turn_that_was_cut_off_is_named_and_can_be_stopped_or_continued(
    open_terminal: OpenTerminal, typed: str, end: str
) -> None:
    again = resume_after_kill(open_terminal, SLEEP, "running", "bypass")
    again.until("was running; it may or may not have taken effect")
    again.until("this turn was cut off")
    again.until("/continue continues it")
    again.type(typed)
    again.until(end)
    again.wait_until_gone("this turn was cut off")


def test_a_turn_that_was_cut_off_at_a_question_continues_after_the_answer(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    touch = {"calls": [{"tool": "bash", "arguments": {"command": "touch made"}}]}
    again = resume_after_kill(open_terminal, touch, "May bash run this?", "default")
    again.until("May bash run this?")
    again.answer("y")
    again.until("Resumed and done.")

    assert (tmp_path / "work" / "made").exists()


def test_a_session_is_resumed_with_its_earlier_messages(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "The first answer."})
    wait_until_ready(terminal)
    terminal.type("hello there" + ENTER)
    terminal.until("The first answer.")
    terminal.type("\x04")
    terminal.end()

    again = open_terminal({"text": "The second answer."}, flags=("-c",))

    again.until("The first answer.")
    again.until("› hello there")
    again.type("more" + ENTER)
    again.until("The second answer.")


def test_a_resize_during_streaming_lays_out_the_text_for_the_new_size(
    open_terminal: OpenTerminal,
) -> None:
    terminal = open_terminal({"text": "word " * 25, "pause": 0.03})
    wait_until_ready(terminal)
    terminal.type("talk" + ENTER)
    terminal.until("word word")
    terminal.screen.resize(16, 50)
    terminal.child.setwinsize(16, 50)
    terminal.until("Enter: for the next step")
    terminal.wait_until_gone("Esc stops")

    assert all(len(row) <= 50 for row in terminal.rows)
    assert terminal.rows[-1].startswith(" script")


def test_terminal_modes_are_restored_after_leaving(open_terminal: OpenTerminal) -> None:
    first = open_terminal({"text": "x"})
    wait_until_ready(first)
    before = _modes(first)
    os.kill(first.child.pid, signal.SIGKILL)
    first.child.wait()

    second = open_terminal({"text": "x"})
    wait_until_ready(second)
    second.type(CTRL_C)
    second.until("again to leave")
    second.type(CTRL_C)

    assert second.end() == 0
    assert second.modes & termios.ECHO
    assert second.modes & termios.ICANON
    assert not before & termios.ECHO
    assert second.raw.rstrip().count("\x1b[?1049l") >= 1
    assert second.raw.rindex("\x1b[?25h") > second.raw.rindex("\x1b[?25l")


def test_the_shell_gets_the_terminal_back_after_ctrl_z_and_after_a_kill(
    tmp_path: Path, compiled: Path
) -> None:
    script = tmp_path / "script"
    script.write_text('{"text": "An answer."}')
    terminal = Terminal(
        Path("/bin/bash"), "--norc", "--noediting", "-i", directory=tmp_path, compiled=compiled,
        PS1="shell$ ", REFOLD_HOME=str(tmp_path / "home"), REFOLD_MEMORY="0",
    )  # fmt: skip
    command = f"{sys.executable} {PROGRAM} tui --script script"
    asks = "stty -a | grep -wc -e -echo -e -icanon -e -isig; echo $?"
    terminal.type(f"{command}\n")
    wait_until_ready(terminal)
    terminal.type("a draft")
    terminal.until("› a draft")
    terminal.type(CTRL_Z)
    terminal.wait_for_text("Stopped", since=terminal.sent_bytes)
    terminal.type(f"{asks} stopped\n")
    terminal.wait_for_text("0\r\n1 stopped", since=terminal.sent_bytes)
    terminal.type("fg\n")
    terminal.wait_for_text("\x1b[?1049h", since=terminal.sent_bytes)
    terminal.type(" goes on" + ENTER)
    terminal.until("› a draft goes on")
    terminal.until("An answer.")
    subprocess.run(["pkill", "-9", "-P", str(terminal.child.pid)], check=True)
    terminal.wait_for_text("Killed", since=terminal.sent_bytes)
    terminal.type(f"{command} -c\n")
    terminal.wait_for_text("\x1b[?1049h", since=terminal.sent_bytes)
    terminal.until("› a draft goes on")
    wait_until_ready(terminal)
    terminal.type("\x04")
    terminal.wait_for_text("To resume", since=terminal.sent_bytes)
    terminal.type(f"{asks} after all\n")
    terminal.wait_for_text("0\r\n1 after all", since=terminal.sent_bytes)

    assert terminal.raw.rindex("\x1b[?1049l") > terminal.raw.rindex("\x1b[?1049h")


def test_kitty_draws_images_and_distinguishes_keys_until_refold_exits(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    (tmp_path / "work" / "plan.png").write_bytes(png(40, 40))
    terminal = open_terminal({"text": "I see it."}, TERM="xterm-kitty")
    wait_until_ready(terminal)

    terminal.type("look at @plan.png")
    terminal.until("› look at @plan.png")
    terminal.type("\x1b[13;2uand say" + ENTER)
    terminal.wait_for_text("\x1b_Ga=p")
    terminal.wait_for_text("I see it.")
    terminal.type("\x1b[100;5u")  # Ctrl+D

    assert terminal.end() == 0
    assert terminal.raw.index("\x1b[?1049h") < terminal.raw.index("\x1b[>5u")
    end = [
        terminal.raw.rindex(text) for text in ("\x1b_Ga=d,d=A", "\x1b[<u", "\x1b[?1049l")
    ]
    assert end == sorted(end)


def _modes(terminal: Terminal) -> int:
    return termios.tcgetattr(terminal.child.child_fd)[3]


@pytest.mark.parametrize("term", ["vt100", "dumb", ""])
def test_a_terminal_without_full_screen_support_is_refused_with_a_hint(
    open_terminal: OpenTerminal, term: str
) -> None:
    terminal = open_terminal({"text": "x"}, TERM=term)

    assert terminal.end() == 1
    assert "use refold --display plain" in " ".join(terminal.text.split())


@pytest.mark.parametrize(
    "term", ["xterm", "screen-256color", "tmux-256color", "linux", "xterm-kitty"]
)
def test_the_full_screen_works_in_common_terminals(
    open_terminal: OpenTerminal, term: str
) -> None:
    terminal = open_terminal({"text": "An answer."}, TERM=term)
    wait_until_ready(terminal)
    terminal.type("hi" + ENTER)
    terminal.until("An answer.")


def test_an_image_of_the_clipboard_is_sent_with_the_message_that_contains_its_label(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    desktop = tmp_path / "desktop"
    desktop.mkdir(mode=0o755)
    program = desktop / "xclip"
    (tmp_path / "copied.png").write_bytes(png(8, 8))
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/copied.png'\n")
    program.chmod(0o755)
    terminal = open_terminal(
        {"text": "I see."}, PATH=f"{desktop}:{os.environ['PATH']}", DISPLAY=":0"
    )
    wait_until_ready(terminal)
    terminal.type("look at " + CTRL_V)
    terminal.until("› look at [image 1]")
    terminal.type("please" + ENTER)
    terminal.until("I see.")

    assert "▣ clipboard-1.png · image/png" in terminal.text


def _editor(tmp_path: Path, appends: str) -> str:
    program = tmp_path / "editor"
    program.write_text(
        "#!/bin/sh\nstty -a | grep -q ' icanon' && echo 'The editor has the terminal.'\n"
        f"printf '%s' '{appends}' >> \"$1\"\nread line\n"
    )
    program.chmod(0o755)
    return str(program)


def test_a_plan_is_edited_in_an_editor_that_gets_the_whole_terminal(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(
        PLAN, DONE, flags=("--permission-mode", "plan"), EDITOR=_editor(tmp_path, " twice")
    )
    wait_until_ready(terminal)
    terminal.type("plan it" + ENTER)
    terminal.choose("edit")
    terminal.until("The editor has the terminal.")
    terminal.type(ENTER)
    terminal.until("1. Change the word twice")
    terminal.answer("y")
    terminal.until("Now hello.py says hello.")


def test_a_message_is_edited_in_an_editor_that_gets_the_whole_terminal(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal({"text": "An answer."}, EDITOR=_editor(tmp_path, " and more"))
    wait_until_ready(terminal)
    terminal.type("first words" + ENTER)
    terminal.until("An answer.")
    terminal.type("/edit 2" + ENTER)
    terminal.until("The editor has the terminal.")
    terminal.type(ENTER)
    terminal.until("Message 2 is changed.")


def test_a_session_that_is_open_elsewhere_is_joined_on_the_full_screen(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    first = open_terminal({"text": "The first answer."}, {"text": "The second answer."})
    wait_until_ready(first)
    first.type("hello there" + ENTER)
    first.until("The first answer.")

    second = open_terminal(script=False, flags=("--attach", "last"))
    second.until("The first answer.")
    second.type("from the other one" + ENTER)
    second.until("The second answer.")
    first.until("from the other one")
    first.until("The second answer.")
    second.type("\x04")

    assert second.end() == 0
    first.type("\x04")
    assert first.end() == 0


def test_on_a_slow_connection_keys_are_handled_while_a_long_response_is_written(
    open_terminal: OpenTerminal,
) -> None:
    """The connection takes at most 10,000 bytes a second."""
    words = "".join(f"word{n} " for n in range(600))
    terminal = open_terminal({"text": words, "pause": 0.002})
    wait_until_ready(terminal)
    terminal.type("talk" + ENTER)
    began = time.monotonic()
    before = len(terminal.raw)
    while "word1" not in terminal.text and time.monotonic() < began + 20:
        terminal.read_slowly(10_000)
    terminal.type("xyz")
    bytes_before_echo = len(terminal.raw)
    while "› xyz" not in terminal.text and time.monotonic() < began + 40:
        terminal.read_slowly(10_000)
    echo_bytes = len(terminal.raw) - bytes_before_echo
    while "word599" not in terminal.text and time.monotonic() < began + 60:
        terminal.read_slowly(10_000)

    assert "word599" in terminal.text
    assert echo_bytes < 30_000  # three seconds of this line
    assert len(terminal.raw) - before < 25 * len(words)


def test_a_screenshot_for_the_documents_shows_the_question(tmp_path: Path) -> None:
    (story,) = (item for item in STORIES if item.name == "question")

    image = take_image(story, tmp_path)

    words = "".join(ElementTree.fromstring(image).itertext()).replace(NBSP, " ")
    assert "Edit hello.py?" in words
    assert "accept edits from here on" in words
