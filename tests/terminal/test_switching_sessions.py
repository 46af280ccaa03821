"""Renaming, leaving, searching and resuming sessions in a real terminal."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import ENTER, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
TERMS = {"line": "xterm-256color", "status": "screen", "plain": "dumb"}


@pytest.fixture
def start_terminal(tmp_path: Path, compiled: Path) -> Iterator[Callable[[str], Terminal]]:
    """With three answers, and a person's own command in the folder."""
    script = "".join(f'{{"text": "Answer {n}."}}\n' for n in "abc")
    (tmp_path / "script").write_text(script)
    greet = tmp_path / ".refold/commands/greet.md"
    greet.parent.mkdir(parents=True)
    greet.write_text("Say hello to $1.")
    terminals = list[Terminal]()

    def start(display: str) -> Terminal:
        arguments = ("--script", "script", "--trust", "--display", display)
        environ = {"TERM": TERMS[display]}
        terminal = Terminal(
            PROGRAM, *arguments, directory=tmp_path, compiled=compiled, **environ
        )
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.child.close(force=True)


@pytest.mark.slow
@pytest.mark.parametrize("display", TERMS)
def test_a_renamed_session_is_left_and_resumed_from_the_list(
    display: str, start_terminal: Callable[[str], Terminal]
) -> None:
    terminal = start_terminal(display)
    terminal.until("Ctrl+D leaves")
    for typed, text in (
        ("paint the fence", "Answer a."),
        ("/rename fence work", "This session is called 'fence work'."),
        ("/clear", "A new session."),
        ("hello", "Answer b."),
    ):
        terminal.type(typed + ENTER)
        terminal.until(text)
    terminal.type("/resume" + ENTER)
    terminal.until("fence work: paint the f")
    terminal.type(ENTER if display == "line" else "1" + ENTER)
    terminal.until('Resumed "fence work".')
    terminal.type("/greet Anna" + ENTER)
    terminal.until("Answer c.")
    terminal.type("/history 1" + ENTER)
    terminal.until("  /greet Anna")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert "Answer a." in terminal.text
