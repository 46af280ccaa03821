"""From one directory to another in a real terminal, and what is there after a kill."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import ENTER, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
TERMS = {"line": "xterm-256color", "status": "screen", "plain": "dumb"}
PWD = '{"calls": [{"tool": "bash", "arguments": {"command": "pwd > here.txt"}}]}\n'
pytestmark = pytest.mark.slow
StartTerminal = Callable[..., Terminal]


@pytest.fixture
def directory_b(tmp_path: Path) -> Path:
    """Next to it is `a`, with a name in it that occurs nowhere else."""
    path = tmp_path / "b"
    (tmp_path / "a").mkdir()
    (path / ".refold").mkdir(parents=True)
    (path / ".refold/config.toml").write_text('[permissions]\nallow = ["bash(pwd *)"]\n')
    (path / "unheard-of.txt").write_text("here\n")
    return path


@pytest.fixture
def start_terminal(directory_b: Path, compiled: Path) -> Iterator[StartTerminal]:
    answers = f'{{"text": "Answer a."}}\n{PWD}{{"text": "Answer b."}}\n'
    (directory_b.parent / "script").write_text(answers)
    terminals = list[Terminal]()

    def start(
        display: str, *arguments: str, directory: Path = directory_b.parent / "a"
    ) -> Terminal:
        flags = (
            "--script",
            str(directory_b.parent / "script"),
            "--display",
            display,
            *arguments,
        )
        term = TERMS[display]
        terminal = Terminal(
            PROGRAM,
            *flags,
            directory=directory,
            compiled=compiled,
            size=(40, 240),
            TERM=term,
        )
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.child.close(force=True)


@pytest.mark.parametrize("display", TERMS)
def test_a_session_moved_by_cd_is_resumed_completely_after_a_kill(
    display: str, start_terminal: StartTerminal, directory_b: Path
) -> None:
    terminal = start_terminal(display)
    terminal.wait_for_prompt(">" if display == "plain" else "›")
    terminal.type("hello" + ENTER)
    terminal.until("Answer a.")
    terminal.wait_for_prompt(">" if display == "plain" else "›")
    terminal.type("/cd ../b" + ENTER)
    terminal.until("runs without asking: bash(pwd *)")
    terminal.until("when they change. y/n")
    terminal.type("n" if display == "line" else "n" + ENTER)
    terminal.until("Its settings and instructions are ignored.")
    terminal.until("not trusted, so these settings are ignored")
    terminal.type("go" + ENTER)
    terminal.until("May bash run this?")
    terminal.until("› 1 once" if display != "plain" else "> 1 once")
    terminal.type("y" if display == "line" else "y" + ENTER)
    terminal.until("Answer b.")
    os.kill(terminal.child.pid, signal.SIGKILL)
    terminal.end()

    again = start_terminal(display, "-c", directory=directory_b)
    again.until("1 not now")
    again.until("› 1 " if display == "line" else "1 not now")
    again.type("n" if display == "line" else "n" + ENTER)
    again.until("Answer b.")
    again.type("/quit" + ENTER)

    assert again.end() == 0
    assert (directory_b / "here.txt").read_text() == f"{directory_b}\n"
    assert "To resume: refold -c " in again.text


def test_after_cd_completion_lists_the_new_files_and_typed_ahead_text_is_sent(
    start_terminal: StartTerminal, directory_b: Path
) -> None:
    (directory_b / ".refold/config.toml").unlink()
    terminal = start_terminal("line")
    terminal.wait_for_prompt()
    terminal.type("/cd ../b" + ENTER + "hello" + ENTER)
    terminal.until("Answer a.")
    terminal.wait_for_prompt()
    terminal.type("see @unh")
    terminal.until("unheard-of.txt")
    terminal.type("\x03")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert f"refold · script/script · {directory_b}" in terminal.rows
    assert "To resume: refold -r 20" in terminal.text


def test_after_cd_completion_offers_the_templates_of_the_new_folder(
    start_terminal: StartTerminal, directory_b: Path
) -> None:
    (directory_b / ".refold/config.toml").unlink()
    (directory_b / ".refold/commands").mkdir()
    (directory_b / ".refold/commands/greet.md").write_text("Say hello to $1.")
    terminal = start_terminal("line")
    terminal.wait_for_prompt()
    terminal.type("/cd ../b" + ENTER)
    terminal.until("will be sent to the model. y/n")
    terminal.type("y")
    terminal.until(str(directory_b))
    terminal.wait_for_prompt()
    terminal.type("/gree")
    terminal.until("Say hello to")
    terminal.type("\x03")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
