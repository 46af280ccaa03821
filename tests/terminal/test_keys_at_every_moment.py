"""Esc, Ctrl+C and typing at every 100 ms of a turn, in four displays, through a real terminal.

In `joined`, another process has the session open, and runs its turns.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.journal_files import find_journals
from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal
from tests.terminal.test_terminal_signals import list_turn_ends

pytestmark = pytest.mark.slow

PROGRAM = STAGE.with_name("stage_program.py")
DISPLAYS = ("line", "plain", "full", "joined")
MOMENTS = [tenth / 10 for tenth in range(10)]  # seconds after Enter
PLAIN_ESC = ESC + "\n"
WORDS = "hey do you try it"  # each letter is an answer somewhere, or begins a name of one
SPEECH = {"text": "word " * 60, "pause": 0.005}
SLEEP: dict[str, Any] = {
    **SPEECH,
    "calls": [{"tool": "bash", "arguments": {"command": f"sleep 61.{os.getpid()}"}}],
}
SPEAKS = {"text": "word " * 500, "pause": 0.01}
SLEEPS_TWICE = {**SPEECH, "calls": [*SLEEP["calls"], *SLEEP["calls"]]}
# Esc stops every second turn, Ctrl+C the others.
TURNS = [
    (response, moment, (index + tenth) % 2)
    for index, response in enumerate((SLEEP, SPEAKS, SLEEPS_TWICE))
    for tenth, moment in enumerate(MOMENTS)
]
ASKS = {**SPEECH, "calls": [{"tool": "bash", "arguments": {"command": "touch ran"}}]}
OpenTerminal = Callable[..., Terminal]


class TerminalBeside(Terminal):
    """A terminal that also reads the output of another one, which would block otherwise."""

    beside: Terminal | None = None

    def read(self, most: int = 4096) -> bool:
        if self.beside is not None:
            self.beside.read()
        return super().read(most)


@pytest.fixture
def open_terminal(tmp_path: Path, compiled: Path) -> Iterator[OpenTerminal]:
    """Starts refold in this display with the response for each turn; returns the terminal."""
    terminals = list[Terminal]()

    def start(*flags: str, term: str = "xterm-256color") -> TerminalBeside:
        terminal = TerminalBeside(
            PROGRAM, *flags, directory=tmp_path, compiled=compiled, TERM=term
        )
        terminals.append(terminal)
        return terminal

    def open_(display: str, responses: Sequence[object], *flags: str) -> Terminal:
        lines = (f"{json.dumps(response)}\n" for response in (*responses, responses[-1]))
        (tmp_path / "script").write_text("".join(lines))
        arguments = ("--script", "script", *flags)
        if display == "plain":
            at = start(*arguments, "--display", "plain", term="dumb")
            at.until("\n>" if "default" in flags else "bypass >")
            return at
        at = start(*(("tui", *arguments) if display == "full" else arguments))
        at.until("? keys" if display == "full" else "›")
        if display != "joined":
            return at
        joined = start("attach", "last")
        joined.beside = at
        joined.until("›")
        return joined

    yield open_
    for at in terminals:
        at.child.close(force=True)


def send(terminal: Terminal, text: str, display: str) -> None:
    terminal.type(text + ("\n" if display == "plain" else ENTER))


def wait_for_turns(terminal: Terminal, directory: Path, count: int) -> None:
    """Wait until `count` turns of the session have ended."""
    deadline = time.monotonic() + 60
    while not has_journal() or len(list_turn_ends(directory)) < count:
        assert time.monotonic() < deadline, terminal.text
        terminal.read()


def has_journal() -> bool:
    return any(find_journals(Path(os.environ["REFOLD_HOME"])))


def read_for(terminal: Terminal, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        terminal.read()


@pytest.mark.parametrize("display", DISPLAYS)
def test_esc_and_ctrl_c_stop_thirty_turns_at_every_moment(
    open_terminal: OpenTerminal, tmp_path: Path, display: str
) -> None:
    terminal = open_terminal(display, [response for response, _, _ in TURNS], "--yolo")
    esc = PLAIN_ESC if display == "plain" else ESC
    for count, (_, moment, with_esc) in enumerate(TURNS, 1):
        send(terminal, f"go {count}", display)
        read_for(terminal, moment)
        before = terminal.sent_bytes
        terminal.type(esc if with_esc else CTRL_C)
        wait_for_turns(terminal, tmp_path, count)
        if display == "plain":  # before its prompt, Ctrl+C discards the draft
            terminal.wait_for_text("bypass >", since=before)

    assert list_turn_ends(tmp_path) == ["interrupted"] * len(TURNS)
    assert not sleepers()


@pytest.mark.parametrize("display", DISPLAYS)
def test_typed_text_is_never_lost_and_never_answers_a_question(
    open_terminal: OpenTerminal, tmp_path: Path, display: str
) -> None:
    terminal = open_terminal(display, [ASKS] * len(MOMENTS), "--permission-mode", "default")
    for count, moment in enumerate(MOMENTS, 1):
        send(terminal, f"go {count}", display)
        read_for(terminal, moment)
        for letter in WORDS:
            terminal.type(letter)
            read_for(terminal, 0.02)
        if display == "plain":
            terminal.type("\n")
            terminal.wait_for_text("1 once", since=terminal.sent_bytes)
        else:
            terminal.until("Enter sends your message first")
            assert f"› {WORDS}" in terminal.text
        terminal.type(CTRL_C)
        wait_for_turns(terminal, tmp_path, count)
        if display != "plain":
            terminal.until(f"› {WORDS}")
            terminal.type("\x15")  # Ctrl+U
            terminal.wait_until_gone(f"› {WORDS}")

    assert not (tmp_path / "ran").exists()
    assert list_turn_ends(tmp_path) == ["interrupted"] * len(MOMENTS)


@pytest.mark.parametrize("display", ["line", "full", "joined"])
def test_digits_and_enter_typed_while_a_question_comes_choose_no_option(
    open_terminal: OpenTerminal, tmp_path: Path, display: str
) -> None:
    question = {"question": "Which?", "options": ["Redis", "SQLite"]}
    call = {"tool": "ask_user", "arguments": {"questions": [question]}}
    terminal = open_terminal(display, [{**SPEECH, "calls": [call]}])
    send(terminal, "go", display)
    terminal.until("word")
    for number in range(200):
        terminal.type("2" if number % 2 else ENTER)
        read_for(terminal, 0.05)
        if number > 20 and "a question waits" in terminal.text:
            break
    for number in range(10):  # it is on the screen by now
        terminal.type("2" if number % 2 else ENTER)
        read_for(terminal, 0.05)
    terminal.until("a question waits")
    terminal.type(CTRL_C)
    wait_for_turns(terminal, tmp_path, 1)

    (journal,) = find_journals(Path(os.environ["REFOLD_HOME"]))
    kinds = [json.loads(line)["kind"] for line in journal.read_text("utf-8").splitlines()]
    assert "Answered" not in kinds
    assert list_turn_ends(tmp_path) == ["interrupted"]


def sleepers() -> list[str]:
    """Return the processes of `SLEEP` that still run."""
    name = f"61.{os.getpid()}".encode()
    running = list[str]()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name in entry.read_bytes().split(b"\0"):
                running.append(entry.parent.name)
        except OSError:
            continue
    return running
