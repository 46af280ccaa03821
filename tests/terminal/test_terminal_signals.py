"""Ctrl+C, Ctrl+Z and the signals that end us, wherever they come: through a real terminal.

So do another size of the window, and a mistake of ours.

The whole program runs, with answers from a script; Ctrl+C is the terminal's own key.
"""

import contextlib
import json
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.journal_files import find_journals
from tests.terminal.pty_terminal import CTRL_C, ESC, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
CTRL_D, CTRL_Z = "\x04", "\x1a"
# Its prompt, the line end, and the bytes of Esc.
DISPLAYS = {
    "line": ("›", "\r", ESC),
    "status": ("›", "\n", ESC + "\n"),
    "plain": (">", "\n", ESC + "\n"),
}
TERMS = {"line": "xterm-256color", "status": "vt100", "plain": "dumb"}
SECONDS = f"60.{os.getpid()}"  # of sleep, which no other process sleeps
LONG = {"text": "word " * 3000, "pause": 0.005}
SLEEP = {
    "calls": [{"tool": "bash", "arguments": {"command": "echo > begun; sleep " + SECONDS}}]
}
CALL_EDIT = {"calls": [{"tool": "write_file", "arguments": {"path": "a", "content": "x"}}]}
QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]},
                           {"question": "Why?"}]}  # fmt: skip
ASK = {"calls": [{"tool": "ask_user", "arguments": QUESTIONS}]}
PLAN = {
    "calls": [
        {"tool": "exit_plan_mode", "arguments": {"plan": "1. Greet", "title": "Greet"}}
    ]
}
CHILD = {"calls": [{"tool": "task", "arguments": {"prompt": "Count.", "agent": "explore"}}]}
COUNTS = {"for": "Count.", "text": "one two " * 3000, "pause": 0.005}
SHORT = {"text": "As you like."}
StartTerminal = Callable[..., Terminal]
displays = pytest.mark.parametrize("display", list(DISPLAYS))


@pytest.fixture
def start_terminal(tmp_path: Path, compiled: Path) -> Iterator[StartTerminal]:
    terminals: list[Terminal] = []

    def start(display: str, lines: Sequence[object], *flags: str, **env: str) -> Terminal:
        script = tmp_path / "script"
        script.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        arguments = ("--script", "script", "--display", display, *flags)
        env = {"TERM": TERMS[display], **env}
        terminal = Terminal(
            PROGRAM, *arguments, directory=tmp_path, compiled=compiled, **env
        )
        terminals.append(terminal)
        return terminal

    yield start
    for at in terminals:
        at.child.close(force=True)


def send(terminal: Terminal, display: str, text: str) -> None:
    terminal.type(text + DISPLAYS[display][1])


def begin_turn(terminal: Terminal, display: str, text: str = "go") -> None:
    terminal.until(f"leaves\n\n{DISPLAYS[display][0]}")
    send(terminal, display, text)


def leave(terminal: Terminal, display: str) -> None:
    """At the next prompt. The terminal is left as it was found."""
    terminal.wait_for_prompt(DISPLAYS[display][0])
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert terminal.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


def list_turn_ends(directory: Path) -> list[str]:
    """Return the ends of the turns in the only journal, whose last line may be incomplete."""
    (journal,) = find_journals(Path(os.environ["REFOLD_HOME"]))
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [e["data"]["outcome"] for e in events if e["kind"] == "TurnEnded"]


def wait_until_recorded(terminal: Terminal, text: str) -> None:
    """Wait until the journal of the only session holds these words."""
    (journal,) = find_journals(Path(os.environ["REFOLD_HOME"]))
    deadline = time.monotonic() + 60
    while text not in journal.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, f"{text!r} was never kept:\n{terminal.text}"
        terminal.read()


def sleeping_commands() -> list[str]:
    """Return the commands of ours that still run, by how long they sleep."""
    texts: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            texts += [entry.parent.name] if SECONDS.encode() in words else []
    return texts


@pytest.mark.slow
@displays
def test_ctrl_c_stops_streaming_and_the_next_message_is_answered(
    start_terminal: StartTerminal, display: str
) -> None:
    terminal = start_terminal(display, [LONG, SHORT])
    begin_turn(terminal, display)
    terminal.until("word word")
    terminal.type(CTRL_C)
    terminal.until(f"instead.\n\n{DISPLAYS[display][0]}")
    send(terminal, display, "be short")
    terminal.until("As you like.")

    leave(terminal, display)


@pytest.mark.slow
def test_ctrl_c_directly_after_enter_stops_the_turn(start_terminal: StartTerminal) -> None:
    terminal = start_terminal("line", [LONG, SHORT])
    terminal.until("leaves\n\n›")
    terminal.type(f"go\r{CTRL_C}")
    terminal.until("stopped")

    leave(terminal, "line")


@pytest.mark.slow
@displays
def test_ctrl_c_ends_processes_started_by_a_tool(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    terminal = start_terminal(display, [SLEEP, SHORT], "--yolo")
    terminal.until(f"bypass {DISPLAYS[display][0]}")
    send(terminal, display, "go")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(CTRL_C)
    terminal.until("\nstopped")
    terminal.wait_for_prompt(f"bypass {DISPLAYS[display][0]}")
    terminal.type(CTRL_D)

    assert terminal.end() == 0
    assert sleeping_commands() == []


@pytest.mark.slow
@displays
def test_text_typed_during_a_turn_is_queued_in_every_display(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    terminal = start_terminal(display, [SLEEP, SHORT], "--yolo")
    terminal.until(f"bypass {DISPLAYS[display][0]}")
    send(terminal, display, "go")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type("hurry up")
    if display != "plain":  # which is reported when the line is complete
        terminal.until("at the next step")
        terminal.until("hurry up")
    send(terminal, display, "")
    if display == "line":
        terminal.wait_until_gone("at the next step")
    terminal.until(f"\n{DISPLAYS[display][0]} hurry up\n")
    wait_until_recorded(terminal, "hurry up")  # before that, Ctrl+C takes the line back
    terminal.type(CTRL_C)
    terminal.until("Not sent yet: hurry up.")


@pytest.mark.slow
@displays
def test_ctrl_c_at_the_prompt_clears_the_typed_text(
    start_terminal: StartTerminal, display: str
) -> None:
    terminal = start_terminal(display, [SHORT])
    terminal.until(f"leaves\n\n{DISPLAYS[display][0]}")
    terminal.type("half a line")
    terminal.until("half a line")
    terminal.type(CTRL_C)
    terminal.wait_for_prompt(DISPLAYS[display][0])
    send(terminal, display, "go")
    terminal.until("As you like.")

    wait_until_recorded(terminal, '"text":"go"')


@pytest.mark.slow
@displays
@pytest.mark.parametrize(
    ("line", "asked", "left"),
    [
        (CALL_EDIT, "no, and why", "stopped at a question"),
        (ASK, "no answer", "stopped at a question"),
        (PLAN, "reject", "The plan waits"),
    ],
)
def test_ctrl_c_leaves_every_dialog(
    start_terminal: StartTerminal, display: str, line: object, asked: str, left: str
) -> None:
    terminal = start_terminal(display, [line, SHORT])
    begin_turn(terminal, display, "/plan go" if line is PLAN else "go")
    terminal.until(asked)
    if line is ASK:
        send(terminal, display, "2")
        terminal.until("Why?")
        terminal.until("(Enter for none)")
    terminal.type(CTRL_C)
    terminal.until(left)
    terminal.until(
        f"plan {DISPLAYS[display][0]}"
        if line is PLAN
        else f"instead.\n\n{DISPLAYS[display][0]}"
    )
    terminal.type(CTRL_D)

    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("display", ["line", "status"])
def test_ctrl_c_stops_a_compaction_requested_by_the_user(
    start_terminal: StartTerminal, display: str
) -> None:
    conversation = {"text": "Well. " * 200}
    terminal = start_terminal(
        display, [conversation, conversation, conversation, conversation, LONG, SHORT]
    )
    begin_turn(terminal, display, "one")
    for words in ("two", "three", "four", "/compact"):
        terminal.wait_for_text(" out", since=terminal.sent_bytes)
        terminal.wait_for_prompt(DISPLAYS[display][0])
        send(terminal, display, words)
    terminal.until("requesting a summary")
    terminal.type(CTRL_C)

    terminal.until(f"The conversation is unchanged.\n\n{DISPLAYS[display][0]}")
    terminal.type(CTRL_D)
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("display", ["line", "status"])
def test_ctrl_c_stops_an_automatic_compaction(
    start_terminal: StartTerminal, display: str
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir()
    filled = "[context]\ndefault_window_tokens = 20_000\ncompact_share = 0.03\nkept_messages = 1\n"
    (home / "config.toml").write_text(filled)
    conversation = {"text": "Well. " * 400}
    terminal = start_terminal(display, [conversation, conversation, LONG, SHORT, SHORT])
    begin_turn(terminal, display, "one")
    for words in ("two", "three"):
        terminal.wait_for_text(" out", since=terminal.sent_bytes)
        terminal.wait_for_prompt(DISPLAYS[display][0])
        send(terminal, display, words)
    terminal.until("requesting a summary")
    terminal.type(CTRL_C)
    terminal.until("Not sent yet: three.")
    terminal.wait_for_prompt(DISPLAYS[display][0])
    send(terminal, display, "be short")
    terminal.until("As you like.")

    leave(terminal, display)


@pytest.mark.slow
@displays
def test_ctrl_z_suspends_and_fg_resumes_the_session(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    (tmp_path / "script").write_text(json.dumps(LONG))
    command = f"{sys.executable} {PROGRAM} --script script --display {display}"
    terminal = Terminal(
        Path("/bin/bash"), "--norc", "--noediting", "-i", directory=tmp_path, compiled=compiled,
        TERM=TERMS[display], PS1="shell$ ",
    )  # fmt: skip
    terminal.type(f"{command}\n")
    terminal.until(f"leaves\n\n{DISPLAYS[display][0]}")
    for moment in ("at the prompt", "at work"):
        terminal.type(CTRL_Z)
        terminal.wait_for_text("Stopped", since=terminal.sent_bytes)
        terminal.type(
            f"stty -a | grep -wc -e -echo -e -icanon -e -isig; echo $? {moment}\n"
        )
        terminal.until(f"0\n1 {moment}")
        terminal.type("fg\n")
        if moment == "at the prompt":
            terminal.wait_for_prompt(DISPLAYS[display][0])
            send(terminal, display, "go")
            terminal.until("word word")
    terminal.wait_for_text("word", since=terminal.sent_bytes)
    terminal.type(CTRL_C)
    terminal.until("\nstopped")
    terminal.wait_for_prompt(DISPLAYS[display][0])
    terminal.type(CTRL_D)
    terminal.wait_for_prompt("shell$")
    terminal.type("exit\n")

    assert terminal.end() == 0


@pytest.mark.slow
@displays
def test_ctrl_c_ends_the_wait_for_a_retry(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir()
    (home / "config.toml").write_text(
        'permission_mode = "default"\n'
        '[providers.mine]\nwire = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "[http]\nretries = 9\n"
    )
    env = {"TERM": TERMS[display]}
    flags = ("-m", "mine/one", "--display", display)
    terminal = Terminal(PROGRAM, *flags, directory=tmp_path, compiled=tmp_path, **env)
    begin_turn(terminal, display)
    terminal.until("retrying in" if display == "plain" else "attempt 2 of 10, next in")
    terminal.type(CTRL_C)
    terminal.until("stopped")
    if display == "line":
        terminal.until("instead.\n\n› go")  # the message comes back
        terminal.type("\x15")  # Ctrl+U

    leave(terminal, display)


@pytest.mark.slow
@displays
def test_ctrl_c_stops_the_turn_and_its_subagent(
    start_terminal: StartTerminal, display: str
) -> None:
    terminal = start_terminal(display, [CHILD, COUNTS, SHORT], "--yolo")
    terminal.until(f"bypass {DISPLAYS[display][0]}")
    send(terminal, display, "go")
    terminal.until("child-1")
    terminal.type(CTRL_C)
    terminal.until("instead.")
    terminal.wait_for_prompt(f"bypass {DISPLAYS[display][0]}")
    send(terminal, display, "be short")
    terminal.until("As you like.")
    terminal.wait_for_prompt(f"bypass {DISPLAYS[display][0]}")
    terminal.type(CTRL_D)

    assert terminal.end() == 0


@pytest.mark.slow
@displays
def test_ctrl_c_ends_a_shell_command_of_the_user(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    terminal = start_terminal(display, [SHORT], SHELL="/bin/sh")
    begin_turn(terminal, display, f"!echo > begun; exec sleep {SECONDS}")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(CTRL_C)
    terminal.until(f"ended by SIGINT\n\n{DISPLAYS[display][0]}")
    send(terminal, display, "go")
    terminal.until("As you like.")

    leave(terminal, display)
    assert sleeping_commands() == []


@pytest.mark.slow
@displays
def test_at_an_empty_prompt_ctrl_c_must_be_pressed_twice_to_leave(
    start_terminal: StartTerminal, display: str
) -> None:
    terminal = start_terminal(display, [SHORT])
    terminal.until(f"leaves\n\n{DISPLAYS[display][0]}")
    terminal.type(CTRL_C)
    terminal.until("Press Ctrl+C again to leave, or Ctrl+D.")
    send(terminal, display, "go")
    terminal.until("As you like.")
    terminal.until(f" s\n\n{DISPLAYS[display][0]}")
    for _ in range(2):
        terminal.type(CTRL_C)
        terminal.wait_for_text(
            "leave" if _ == 0 else "To resume", since=terminal.sent_bytes
        )

    assert terminal.end() == 0


@pytest.mark.slow
def test_ctrl_c_before_the_first_prompt_exits_with_130_and_no_traceback(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    terminal = start_terminal("line", [SHORT])
    terminal.until("1 not now")
    terminal.type(CTRL_C)

    assert terminal.end() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.slow
@displays
def test_ctrl_c_in_the_first_run_exits_with_130(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    for keys in ("", "1"):
        env = {"TERM": TERMS[display], "OLLAMA_HOST": "127.0.0.1:9"}
        terminal = Terminal(
            PROGRAM, "--display", display, directory=tmp_path, compiled=compiled, **env
        )
        terminal.until("esc quit")
        if keys:
            terminal.type(f"{keys}\r" if display == "line" else f"{keys}\n")
            terminal.until("Key or provider")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


@pytest.mark.slow
@displays
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["words", "tool", "question", "draft", "prompt"])
def test_a_signal_ends_the_turn_and_the_journal_records_it(
    start_terminal: StartTerminal,
    tmp_path: Path,
    display: str,
    number: signal.Signals,
    moment: str,
) -> None:
    first = {"tool": SLEEP, "question": CALL_EDIT, "prompt": SHORT}.get(moment, LONG)
    terminal = start_terminal(
        display, [first, SHORT], *(["--yolo"] if moment == "tool" else [])
    )
    terminal.until(DISPLAYS[display][0])
    send(terminal, display, "go")
    if moment == "tool":
        terminal.wait_for_path(tmp_path / "begun")
    else:
        terminal.until(
            {"question": "no, and why", "prompt": "As you like."}.get(moment, "word word")
        )
    if moment == "draft":
        terminal.type("half a line")
        terminal.until("half a line")
    if moment == "prompt":
        terminal.until(f" s\n\n{DISPLAYS[display][0]}")
    terminal.child.kill(number)

    assert terminal.end() == 128 + number
    assert list_turn_ends(tmp_path) == ["answered" if moment == "prompt" else "interrupted"]
    assert terminal.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    assert "running" not in terminal.text.rsplit("\n", 3)[-1]
    assert not terminal.screen.cursor.hidden


@pytest.mark.slow
@displays
def test_closing_the_terminal_ends_the_session_and_records_the_interruption(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    terminal = start_terminal(display, [LONG, SHORT])
    begin_turn(terminal, display)
    terminal.until("word word")
    terminal.child.close(force=False)

    assert not terminal.child.isalive()
    assert list_turn_ends(tmp_path) == ["interrupted"]


@pytest.mark.slow
@pytest.mark.parametrize("display", ["line", "status"])
def test_a_resize_applies_to_a_block_that_is_not_printed_yet(
    start_terminal: StartTerminal, display: str
) -> None:
    rows = "".join(f"| row {n} | some words about it |\n" for n in range(9))
    words = (
        f"Long words that came before.\n\n| name | what |\n|---|---|\n{rows}\nIt ends.\n"
    )
    terminal = start_terminal(display, [{"text": words, "pause": 0.002}])
    begin_turn(terminal, display)
    terminal.until("row 1")
    terminal.child.setwinsize(40, 24)
    terminal.screen.resize(40, 24)
    terminal.until(f" s\n\n{DISPLAYS[display][0]}")

    begins = terminal.rows.index("name  │ what")
    assert terminal.rows[begins + 2 : begins + 4] == [
        "row 0 │ some words about",
        "      │ it",
    ]
    assert "writing" not in terminal.text
    leave(terminal, display)


@pytest.mark.slow
@displays
def test_an_internal_error_restores_the_terminal_modes(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    mistake = STAGE.with_name("stage_mistake.py")
    env = {"TERM": TERMS[display], "SHOWN": display}
    terminal = Terminal(mistake, directory=tmp_path, compiled=compiled, **env)
    begin_turn(terminal, display)

    assert terminal.end() == 1
    assert "word word" in terminal.paper or display != "plain"
    assert any(row.startswith("  + Exception Group Traceback") for row in terminal.paper)
    assert terminal.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    assert terminal.raw.rfind("\x1b[?2004h") <= terminal.raw.rfind("\x1b[?2004l")
    assert not terminal.screen.cursor.hidden
