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
    at = open_terminal(EDIT, CHANGE, DONE)
    wait_until_ready(at)
    at.type("say hello" + ENTER)
    at.until("Edit hello.py?")
    at.until('+    return "hello"')
    at.answer("y")
    at.until("Now hello.py says hello.")
    at.until("changed hello.py +1 -1")
    at.type("\x04")

    assert at.end() == 0
    assert 'return "hello"' in (tmp_path / "work" / "hello.py").read_text()
    assert "To resume: refold -c" in at.text


def test_a_refusal_with_its_reason_reaches_the_model(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    at = open_terminal(EDIT, CHANGE, {"text": "Then I leave it."})
    wait_until_ready(at)
    at.type("say hello" + ENTER)
    at.until("Edit hello.py?")
    at.answer("n")
    at.until("why not?")
    at.type("too loud" + ENTER)
    at.until("Then I leave it.")

    assert "too loud" in at.text
    assert (tmp_path / "work" / "hello.py").read_text() == HELLO


def test_a_plan_is_approved_and_a_question_is_answered(open_terminal: OpenTerminal) -> None:
    at = open_terminal(PLAN, ASK, DONE, flags=("--permission-mode", "plan"))
    wait_until_ready(at)
    at.type("plan it" + ENTER)
    at.until("Greet better")
    at.answer("y")
    at.until("Which word?")
    at.until("or type an answer")
    at.type("2" + ENTER)
    at.until("Now hello.py says hello.")


def test_esc_stops_a_turn_and_the_next_message_is_answered(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "word " * 400, "pause": 0.05}, {"text": "I go on."})
    wait_until_ready(at)
    at.type("talk" + ENTER)
    at.until("word word word")
    at.type(ESC)
    at.until_gone("Esc stops")
    at.type("continue please" + ENTER)
    at.until("I go on.")


def test_messages_typed_during_a_turn_are_shown_as_queued_until_delivered(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "word " * 8, "pause": 0.05}, {"text": "Second turn."})
    wait_until_ready(at)
    at.type("talk" + ENTER)
    at.until("word")
    at.type("and then this" + ESC + ENTER)
    at.until("after this turn: and then this")
    at.until("Second turn.")


def test_panels_search_and_the_command_palette_open_by_their_keys(
    open_terminal: OpenTerminal,
) -> None:
    todos = {
        "text": "Needle in here.",
        "calls": [{"tool": "todo_write", "arguments": {"todos": [
            {"subject": "Mend the door", "status": "in_progress"},
        ]}}],
    }  # fmt: skip
    at = open_terminal(todos, {"text": "\n\n".join(f"line {n}" for n in range(60))})
    wait_until_ready(at)
    at.type("go" + ENTER)
    at.until("line 59")
    at.type(CTRL_T)
    at.until("Todos")
    at.until("Mend the door")
    at.type(CTRL_T)
    at.until_gone("Mend the door")
    at.type(CTRL_S + "needle")
    at.until("Needle in here.")
    at.type(ESC)
    at.until("? keys")
    time.sleep(0.2)
    at.type(CTRL_P)
    at.until("Enter chooses")
    at.type("context us" + ENTER)
    at.until("› /context")


def test_a_draft_is_stored_with_its_session_and_restored_on_return(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "Here I am."}, {"text": "Again."})
    wait_until_ready(at)
    at.type("hello" + ENTER)
    at.until("Here I am.")
    at.type("half a thought")
    at.until("half a thought")
    at.type(CTRL_P)
    at.until("Enter chooses")
    at.type("/clear" + ENTER)
    at.until("A new session.")
    at.until_gone("half a thought")
    at.type("/resume" + ENTER)
    at.until("Enter chooses")
    at.type(ENTER)
    at.until("Here I am.")
    at.until("half a thought")


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
    at = open_terminal(work, {"text": "It runs."}, flags=("--allow", "background_run"))
    wait_until_ready(at)
    at.type("go" + ENTER)
    at.until("It runs.")
    at.type(F7)
    at.until("Mend the door")
    _run_in_shell(tmp_path, "tasks", "add", "Paint the wall")
    at.until("Paint the wall")
    at.type(F8)
    at.until("background-1 runs")
    at.until("it begins")
    at.type("\t" + ENTER)
    at.until("Esc closes")
    with log.open("a") as file:
        file.write("and goes on\n")
    at.until("and goes on")
    at.type(ESC)
    at.until_gone("Esc closes")
    at.type("\tx")
    at.until("background-1 stopped")
    at.type("\x04")


def test_a_shell_command_runs_in_the_transcript_while_the_person_types(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "I see."})
    wait_until_ready(at)
    at.type("!seq 40; read word; echo two; exit 3" + ENTER)
    at.until("    40")
    at.until("Esc stops it")
    at.type("my draft")
    at.until("› my draft")
    at.type("\x15")  # empties the input
    at.until("› Ask anything")
    at.type(ENTER)  # gives the command the terminal
    at.until_gone("? keys")  # the numbers have scrolled it away
    at.type("word" + ENTER)
    wait_until_ready(at)
    at.until("exit code 3")
    at.until("more lines; Ctrl+O shows them")

    assert "two" in at.text
    assert "Esc stops it" not in at.text


@pytest.mark.parametrize(
    "command",
    ["stty -echo; read x; stty echo", r"printf '\e[?1049h'; read x; printf '\e[?1049l'"],
)
def test_a_shell_command_that_reads_from_the_terminal_gets_the_terminal(
    open_terminal: OpenTerminal, command: str
) -> None:
    at = open_terminal()
    wait_until_ready(at)
    at.type(f"!seq 40; {command}; echo got $x{ENTER}")
    at.until_gone("? keys")  # the numbers have scrolled it away
    at.type("secret" + ENTER)
    wait_until_ready(at)

    at.until("! seq 40")
    assert "› secret" not in at.text


def test_a_shell_command_is_stopped_by_esc(open_terminal: OpenTerminal) -> None:
    at = open_terminal()
    wait_until_ready(at)
    at.type("!echo begun; sleep 60" + ENTER)
    at.until("└ begun")
    at.type(ESC)

    at.until("ended by SIGINT")


def test_a_rule_is_added_edited_and_removed_in_the_list_of_permissions(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "Hello."})
    wait_until_ready(at)
    at.type("/permissions" + ENTER)
    at.until("+ add a rule")
    at.type(ENTER)
    at.until("New rule")
    at.type("ask always" + ENTER)
    at.until("Rule, such as")
    at.type("bash(make *)" + ENTER)
    at.until("ask     bash(make *)  always, in this folder")
    at.type("make" + ENTER)
    at.until("remove it")
    at.type(ENTER)
    at.until_gone("remove it")
    at.type("\x7f\x7f\x7f x *)" + ENTER)
    at.until("ask     bash(make x *)")
    at.type("make" + ENTER)
    at.until("remove it")
    at.type(DOWN + ENTER)
    at.until("Removed: ask bash(make x *)")
    at.until_gone("ask     bash(make x *)")


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
    """The screen of a session whose process was killed while `running` was shown."""
    at = open_terminal(call, flags=("--permission-mode", mode))
    wait_until_ready(at)
    at.type("go" + ENTER)
    at.until(running)
    at.child.kill(signal.SIGKILL)
    at.child.wait()
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
    again.until_gone("this turn was cut off")


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
    at = open_terminal({"text": "The first answer."})
    wait_until_ready(at)
    at.type("hello there" + ENTER)
    at.until("The first answer.")
    at.type("\x04")
    at.end()

    again = open_terminal({"text": "The second answer."}, flags=("-c",))

    again.until("The first answer.")
    again.until("› hello there")
    again.type("more" + ENTER)
    again.until("The second answer.")


def test_a_resize_during_streaming_lays_out_the_text_for_the_new_size(
    open_terminal: OpenTerminal,
) -> None:
    at = open_terminal({"text": "word " * 25, "pause": 0.03})
    wait_until_ready(at)
    at.type("talk" + ENTER)
    at.until("word word")
    at.screen.resize(16, 50)
    at.child.setwinsize(16, 50)
    at.until("Enter: for the next step")
    at.until_gone("Esc stops")

    assert all(len(row) <= 50 for row in at.rows)
    assert at.rows[-1].startswith(" script")


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
    at = Terminal(
        Path("/bin/bash"), "--norc", "--noediting", "-i", directory=tmp_path, compiled=compiled,
        PS1="shell$ ", REFOLD_HOME=str(tmp_path / "home"), REFOLD_MEMORY="0",
    )  # fmt: skip
    command = f"{sys.executable} {PROGRAM} tui --script script"
    asks = "stty -a | grep -wc -e -echo -e -icanon -e -isig; echo $?"
    at.type(f"{command}\n")
    wait_until_ready(at)
    at.type("a draft")
    at.until("› a draft")
    at.type(CTRL_Z)
    at.until_sent("Stopped", since=at.sent_bytes)
    at.type(f"{asks} stopped\n")
    at.until_sent("0\r\n1 stopped", since=at.sent_bytes)
    at.type("fg\n")
    at.until_sent("\x1b[?1049h", since=at.sent_bytes)
    at.type(" goes on" + ENTER)
    at.until("› a draft goes on")
    at.until("An answer.")
    subprocess.run(["pkill", "-9", "-P", str(at.child.pid)], check=True)
    at.until_sent("Killed", since=at.sent_bytes)
    at.type(f"{command} -c\n")
    at.until_sent("\x1b[?1049h", since=at.sent_bytes)
    at.until("› a draft goes on")
    wait_until_ready(at)
    at.type("\x04")
    at.until_sent("To resume", since=at.sent_bytes)
    at.type(f"{asks} after all\n")
    at.until_sent("0\r\n1 after all", since=at.sent_bytes)

    assert at.raw.rindex("\x1b[?1049l") > at.raw.rindex("\x1b[?1049h")


def test_kitty_draws_images_and_distinguishes_keys_until_refold_exits(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    (tmp_path / "work" / "plan.png").write_bytes(png(40, 40))
    at = open_terminal({"text": "I see it."}, TERM="xterm-kitty")
    wait_until_ready(at)

    at.type("look at @plan.png")
    at.until("› look at @plan.png")
    at.type("\x1b[13;2uand say" + ENTER)
    at.until_sent("\x1b_Ga=p")
    at.until_sent("I see it.")
    at.type("\x1b[100;5u")  # Ctrl+D

    assert at.end() == 0
    assert at.raw.index("\x1b[?1049h") < at.raw.index("\x1b[>5u")
    end = [at.raw.rindex(text) for text in ("\x1b_Ga=d,d=A", "\x1b[<u", "\x1b[?1049l")]
    assert end == sorted(end)


def _modes(terminal: Terminal) -> int:
    return termios.tcgetattr(terminal.child.child_fd)[3]


@pytest.mark.parametrize("term", ["vt100", "dumb", ""])
def test_a_terminal_without_full_screen_support_is_refused_with_a_hint(
    open_terminal: OpenTerminal, term: str
) -> None:
    at = open_terminal({"text": "x"}, TERM=term)

    assert at.end() == 1
    assert "use refold --display plain" in " ".join(at.text.split())


@pytest.mark.parametrize(
    "term", ["xterm", "screen-256color", "tmux-256color", "linux", "xterm-kitty"]
)
def test_the_full_screen_works_in_common_terminals(
    open_terminal: OpenTerminal, term: str
) -> None:
    at = open_terminal({"text": "An answer."}, TERM=term)
    wait_until_ready(at)
    at.type("hi" + ENTER)
    at.until("An answer.")


def test_an_image_of_the_clipboard_is_sent_with_the_message_that_contains_its_label(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    desktop = tmp_path / "desktop"
    desktop.mkdir(mode=0o755)
    program = desktop / "xclip"
    (tmp_path / "copied.png").write_bytes(png(8, 8))
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/copied.png'\n")
    program.chmod(0o755)
    at = open_terminal(
        {"text": "I see."}, PATH=f"{desktop}:{os.environ['PATH']}", DISPLAY=":0"
    )
    wait_until_ready(at)
    at.type("look at " + CTRL_V)
    at.until("› look at [image 1]")
    at.type("please" + ENTER)
    at.until("I see.")

    assert "▣ clipboard-1.png · image/png" in at.text


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
    at = open_terminal(
        PLAN, DONE, flags=("--permission-mode", "plan"), EDITOR=_editor(tmp_path, " twice")
    )
    wait_until_ready(at)
    at.type("plan it" + ENTER)
    at.choose("edit")
    at.until("The editor has the terminal.")
    at.type(ENTER)
    at.until("1. Change the word twice")
    at.answer("y")
    at.until("Now hello.py says hello.")


def test_a_message_is_edited_in_an_editor_that_gets_the_whole_terminal(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    at = open_terminal({"text": "An answer."}, EDITOR=_editor(tmp_path, " and more"))
    wait_until_ready(at)
    at.type("first words" + ENTER)
    at.until("An answer.")
    at.type("/edit 2" + ENTER)
    at.until("The editor has the terminal.")
    at.type(ENTER)
    at.until("Message 2 is changed.")


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
    """At most 10,000 bytes a second, as over a poor connection."""
    words = "".join(f"word{n} " for n in range(600))
    at = open_terminal({"text": words, "pause": 0.002})
    wait_until_ready(at)
    at.type("talk" + ENTER)
    began = time.monotonic()
    before = len(at.raw)
    while "word1" not in at.text and time.monotonic() < began + 20:
        at.read_slowly(10_000)
    at.type("xyz")
    pressed = time.monotonic()
    while "› xyz" not in at.text and time.monotonic() < pressed + 20:
        at.read_slowly(10_000)
    start = time.monotonic() - pressed
    while "word599" not in at.text and time.monotonic() < began + 60:
        at.read_slowly(10_000)

    assert "word599" in at.text
    assert start < 3
    assert len(at.raw) - before < 25 * len(words)


def test_a_screenshot_for_the_documents_shows_the_question(tmp_path: Path) -> None:
    (story,) = (item for item in STORIES if item.name == "question")

    image = take_image(story, tmp_path)

    words = "".join(ElementTree.fromstring(image).itertext()).replace(NBSP, " ")
    assert "Edit hello.py?" in words
    assert "accept edits from here on" in words
