"""Words on the command line: the first message in a terminal, one task everywhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

import refold
from tests.terminal.pty_terminal import Terminal

PROGRAM = Path(refold.__file__).with_name("__main__.py")
pytestmark = pytest.mark.slow


@pytest.fixture
def answers(tmp_path: Path) -> str:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b'{"text": "Good morning."}\n{"text": "Good night."}\n')
    return str(path)


def test_command_line_arguments_are_the_first_message_of_an_interactive_session(
    tmp_path: Path, answers: str
) -> None:
    flags = ("--script", answers, "--display", "plain")
    terminal = Terminal(PROGRAM, "say hello", *flags, directory=tmp_path, compiled=tmp_path)
    try:
        terminal.until("say hello")
        terminal.until("Good morning.")
        terminal.type("and now\n")
        terminal.until("Good night.")
        terminal.type("\x04")

        assert terminal.end() == 0
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("words", ["/init", "init"])
def test_a_template_name_on_the_command_line_is_expanded(
    tmp_path: Path,
    answers: str,
    home: Path,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`refold init` starts the session that begins with /init."""
    monkeypatch.setenv("REFOLD_TERMINAL__DISPLAY", "plain")
    terminal = Terminal(
        PROGRAM, words, "--script", answers, directory=tmp_path, compiled=tmp_path
    )
    try:
        terminal.until("Good morning.")
        terminal.type("\x04")

        assert terminal.end() == 0
    finally:
        terminal.child.close(force=True)
    (journal,) = home.rglob("events.jsonl")
    (text,) = (row for row in journal.read_text().splitlines() if '"kind":"Said"' in row)
    assert '"typed":"/init"' in text
    assert "AGENTS.md" in text


@pytest.mark.parametrize("flags", [("-p",), ()])
def test_command_line_arguments_with_p_or_without_a_terminal_run_as_one_task(
    tmp_path: Path, answers: str, flags: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "refold", *flags, "say hello", "--script", answers],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "Good morning.\n", "")


def test_the_p_flag_runs_one_task_in_a_terminal_too(tmp_path: Path, answers: str) -> None:
    arguments = ("-p", "say hello", "--script", answers)
    terminal = Terminal(PROGRAM, *arguments, directory=tmp_path, compiled=tmp_path)
    try:
        assert terminal.end() == 0
        assert terminal.raw.split() == ["Good", "morning."]
    finally:
        terminal.child.close(force=True)
