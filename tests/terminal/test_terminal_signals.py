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

from tests.terminal.pty_terminal import CTRL_C, ESC, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
CTRL_D, CTRL_Z = "\x04", "\x1a"
# Its prompt, what ends a line there, and the bytes of Esc.
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
        result = ("--script", "script", "--display", display, *flags)
        env = {"TERM": TERMS[display], **env}
        at = Terminal(PROGRAM, *result, directory=tmp_path, compiled=compiled, **env)
        terminals.append(at)
        return at

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
    terminal.until_asked(DISPLAYS[display][0])
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert terminal.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


def list_turn_ends(directory: Path) -> list[str]:
    """How the turns of the only session ended, by its journal."""
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("**/events.jsonl")
    events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    return [e["data"]["outcome"] for e in events if e["kind"] == "TurnEnded"]


def wait_until_recorded(terminal: Terminal, text: str) -> None:
    """Wait until the journal of the only session holds these words."""
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("**/events.jsonl")
    deadline = time.monotonic() + 60
    while text not in journal.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, f"{text!r} was never kept:\n{terminal.text}"
        terminal.read()


def sleeping_commands() -> list[str]:
    """The commands of ours that still run, by how long they sleep."""
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
    at = start_terminal(display, [LONG, SHORT])
    begin_turn(at, display)
    at.until("word word")
    at.type(CTRL_C)
    at.until(f"instead.\n\n{DISPLAYS[display][0]}")
    send(at, display, "be short")
    at.until("As you like.")

    leave(at, display)


@pytest.mark.slow
def test_ctrl_c_directly_after_enter_stops_the_turn(start_terminal: StartTerminal) -> None:
    at = start_terminal("line", [LONG, SHORT])
    at.until("leaves\n\n›")
    at.type(f"go\r{CTRL_C}")
    at.until("stopped")

    leave(at, "line")


@pytest.mark.slow
@displays
def test_ctrl_c_ends_processes_started_by_a_tool(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    at = start_terminal(display, [SLEEP, SHORT], "--yolo")
    at.until(f"bypass {DISPLAYS[display][0]}")
    send(at, display, "go")
    at.until_there(tmp_path / "begun")
    at.type(CTRL_C)
    at.until("\nstopped")
    at.until_asked(f"bypass {DISPLAYS[display][0]}")
    at.type(CTRL_D)

    assert at.end() == 0
    assert sleeping_commands() == []


@pytest.mark.slow
@displays
def test_text_typed_during_a_turn_is_queued_in_every_display(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    at = start_terminal(display, [SLEEP, SHORT], "--yolo")
    at.until(f"bypass {DISPLAYS[display][0]}")
    send(at, display, "go")
    at.until_there(tmp_path / "begun")
    at.type("hurry up")
    if display != "plain":  # which is reported when the line is complete
        at.until("at the next step")
        at.until("hurry up")
    send(at, display, "")
    if display == "line":
        at.until_gone("at the next step")
    at.until(f"\n{DISPLAYS[display][0]} hurry up\n")
    wait_until_recorded(at, "hurry up")  # before that, Ctrl+C takes the line back
    at.type(CTRL_C)
    at.until("Not sent yet: hurry up.")


@pytest.mark.slow
@displays
def test_ctrl_c_at_the_prompt_clears_the_typed_text(
    start_terminal: StartTerminal, display: str
) -> None:
    at = start_terminal(display, [SHORT])
    at.until(f"leaves\n\n{DISPLAYS[display][0]}")
    at.type("half a line")
    at.until("half a line")
    at.type(CTRL_C)
    at.until_asked(DISPLAYS[display][0])
    send(at, display, "go")
    at.until("As you like.")

    wait_until_recorded(at, '"text":"go"')


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
    at = start_terminal(display, [line, SHORT])
    begin_turn(at, display, "/plan go" if line is PLAN else "go")
    at.until(asked)
    if line is ASK:
        send(at, display, "2")
        at.until("Why?")
        at.until("(Enter for none)")
    at.type(CTRL_C)
    at.until(left)
    at.until(
        f"plan {DISPLAYS[display][0]}"
        if line is PLAN
        else f"instead.\n\n{DISPLAYS[display][0]}"
    )
    at.type(CTRL_D)

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("display", ["line", "status"])
def test_ctrl_c_stops_a_compaction_requested_by_the_user(
    start_terminal: StartTerminal, display: str
) -> None:
    talk = {"text": "Well. " * 200}
    at = start_terminal(display, [talk, talk, talk, talk, LONG, SHORT])
    begin_turn(at, display, "one")
    for words in ("two", "three", "four", "/compact"):
        at.until_sent(" out", since=at.sent_bytes)
        at.until_asked(DISPLAYS[display][0])
        send(at, display, words)
    at.until("requesting a summary")
    at.type(CTRL_C)

    at.until(f"The conversation is unchanged.\n\n{DISPLAYS[display][0]}")
    at.type(CTRL_D)
    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("display", ["line", "status"])
def test_ctrl_c_stops_an_automatic_compaction(
    start_terminal: StartTerminal, display: str
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir()
    filled = "[context]\ndefault_window_tokens = 20_000\ncompact_share = 0.03\nkept_messages = 1\n"
    (home / "config.toml").write_text(filled)
    talk = {"text": "Well. " * 400}
    at = start_terminal(display, [talk, talk, LONG, SHORT, SHORT])
    begin_turn(at, display, "one")
    for words in ("two", "three"):
        at.until_sent(" out", since=at.sent_bytes)
        at.until_asked(DISPLAYS[display][0])
        send(at, display, words)
    at.until("requesting a summary")
    at.type(CTRL_C)
    at.until("Not sent yet: three.")
    at.until_asked(DISPLAYS[display][0])
    send(at, display, "be short")
    at.until("As you like.")

    leave(at, display)


@pytest.mark.slow
@displays
def test_ctrl_z_suspends_and_fg_resumes_the_session(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    (tmp_path / "script").write_text(json.dumps(LONG))
    command = f"{sys.executable} {PROGRAM} --script script --display {display}"
    at = Terminal(
        Path("/bin/bash"), "--norc", "--noediting", "-i", directory=tmp_path, compiled=compiled,
        TERM=TERMS[display], PS1="shell$ ",
    )  # fmt: skip
    at.type(f"{command}\n")
    at.until(f"leaves\n\n{DISPLAYS[display][0]}")
    for moment in ("at the prompt", "at work"):
        at.type(CTRL_Z)
        at.until_sent("Stopped", since=at.sent_bytes)
        at.type(f"stty -a | grep -wc -e -echo -e -icanon -e -isig; echo $? {moment}\n")
        at.until(f"0\n1 {moment}")
        at.type("fg\n")
        if moment == "at the prompt":
            at.until_asked(DISPLAYS[display][0])
            send(at, display, "go")
            at.until("word word")
    at.until_sent("word", since=at.sent_bytes)
    at.type(CTRL_C)
    at.until("\nstopped")
    at.until_asked(DISPLAYS[display][0])
    at.type(CTRL_D)
    at.until_asked("shell$")
    at.type("exit\n")

    assert at.end() == 0


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
    texts = ("-m", "mine/one", "--display", display)
    at = Terminal(PROGRAM, *texts, directory=tmp_path, compiled=tmp_path, **env)
    begin_turn(at, display)
    at.until("retrying in" if display == "plain" else "attempt 2 of 10, next in")
    at.type(CTRL_C)
    at.until("stopped")
    if display == "line":
        at.until("instead.\n\n› go")  # the message comes back
        at.type("\x15")  # Ctrl+U

    leave(at, display)


@pytest.mark.slow
@displays
def test_ctrl_c_stops_the_turn_and_its_subagent(
    start_terminal: StartTerminal, display: str
) -> None:
    at = start_terminal(display, [CHILD, COUNTS, SHORT], "--yolo")
    at.until(f"bypass {DISPLAYS[display][0]}")
    send(at, display, "go")
    at.until("child-1")
    at.type(CTRL_C)
    at.until("instead.")
    at.until_asked(f"bypass {DISPLAYS[display][0]}")
    send(at, display, "be short")
    at.until("As you like.")
    at.until_asked(f"bypass {DISPLAYS[display][0]}")
    at.type(CTRL_D)

    assert at.end() == 0


@pytest.mark.slow
@displays
def test_ctrl_c_ends_a_shell_command_of_the_user(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    at = start_terminal(display, [SHORT], SHELL="/bin/sh")
    begin_turn(at, display, f"!echo > begun; exec sleep {SECONDS}")
    at.until_there(tmp_path / "begun")
    at.type(CTRL_C)
    at.until(f"ended by SIGINT\n\n{DISPLAYS[display][0]}")
    send(at, display, "go")
    at.until("As you like.")

    leave(at, display)
    assert sleeping_commands() == []


@pytest.mark.slow
@displays
def test_at_an_empty_prompt_ctrl_c_must_be_pressed_twice_to_leave(
    start_terminal: StartTerminal, display: str
) -> None:
    at = start_terminal(display, [SHORT])
    at.until(f"leaves\n\n{DISPLAYS[display][0]}")
    at.type(CTRL_C)
    at.until("Press Ctrl+C again to leave, or Ctrl+D.")
    send(at, display, "go")
    at.until("As you like.")
    at.until(f" s\n\n{DISPLAYS[display][0]}")
    for _ in range(2):
        at.type(CTRL_C)
        at.until_sent("leave" if _ == 0 else "To resume", since=at.sent_bytes)

    assert at.end() == 0


@pytest.mark.slow
def test_ctrl_c_before_the_first_prompt_exits_with_130_and_no_traceback(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    at = start_terminal("line", [SHORT])
    at.until("1 not now")
    at.type(CTRL_C)

    assert at.end() == 130
    assert "Traceback" not in at.text


@pytest.mark.slow
@displays
def test_ctrl_c_in_the_first_run_exits_with_130(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    for keys in ("", "1"):
        env = {"TERM": TERMS[display], "OLLAMA_HOST": "127.0.0.1:9"}
        at = Terminal(
            PROGRAM, "--display", display, directory=tmp_path, compiled=compiled, **env
        )
        at.until("esc quit")
        if keys:
            at.type(f"{keys}\r" if display == "line" else f"{keys}\n")
            at.until("Key or provider")
        at.type(CTRL_C)

        assert at.end() == 130
        assert "Traceback" not in at.text


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
    at = start_terminal(display, [first, SHORT], *(["--yolo"] if moment == "tool" else []))
    at.until(DISPLAYS[display][0])
    send(at, display, "go")
    if moment == "tool":
        at.until_there(tmp_path / "begun")
    else:
        at.until(
            {"question": "no, and why", "prompt": "As you like."}.get(moment, "word word")
        )
    if moment == "draft":
        at.type("half a line")
        at.until("half a line")
    if moment == "prompt":
        at.until(f" s\n\n{DISPLAYS[display][0]}")
    at.child.kill(number)

    assert at.end() == 128 + number
    assert list_turn_ends(tmp_path) == ["answered" if moment == "prompt" else "interrupted"]
    assert at.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    assert "running" not in at.text.rsplit("\n", 3)[-1]
    assert not at.screen.cursor.hidden


@pytest.mark.slow
@displays
def test_closing_the_terminal_ends_the_session_and_records_the_interruption(
    start_terminal: StartTerminal, tmp_path: Path, display: str
) -> None:
    at = start_terminal(display, [LONG, SHORT])
    begin_turn(at, display)
    at.until("word word")
    at.child.close(force=False)

    assert not at.child.isalive()
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
    at = start_terminal(display, [{"text": words, "pause": 0.002}])
    begin_turn(at, display)
    at.until("row 1")
    at.child.setwinsize(40, 24)
    at.screen.resize(40, 24)
    at.until(f" s\n\n{DISPLAYS[display][0]}")

    begins = at.rows.index("name  │ what")
    assert at.rows[begins + 2 : begins + 4] == ["row 0 │ some words about", "      │ it"]
    assert "writing" not in at.text
    leave(at, display)


@pytest.mark.slow
@displays
def test_an_internal_error_restores_the_terminal_modes(
    tmp_path: Path, compiled: Path, display: str
) -> None:
    mistake = STAGE.with_name("stage_mistake.py")
    env = {"TERM": TERMS[display], "SHOWN": display}
    at = Terminal(mistake, directory=tmp_path, compiled=compiled, **env)
    begin_turn(at, display)

    assert at.end() == 1
    assert "word word" in at.paper or display != "plain"
    assert any(row.startswith("  + Exception Group Traceback") for row in at.paper)
    assert at.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    assert at.raw.rfind("\x1b[?2004h") <= at.raw.rfind("\x1b[?2004l")
    assert not at.screen.cursor.hidden
