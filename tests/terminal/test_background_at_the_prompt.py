"""Background commands at the prompt: what wakes the agent there, and what leaving ends."""

import json
import socket
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import ENTER, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
WAITS = "until test -e go; do sleep 0.01; done; echo ready; sleep 60"


def deferred_answer(name: str, **arguments: object) -> dict[str, object]:
    """Return an answer that calls a deferred tool."""
    call = {"tool": "tool_call", "arguments": {"name": name, "arguments": arguments}}
    return {"calls": [call]}


def open_terminal(directory: Path, compiled: Path, *answers: dict[str, object]) -> Terminal:
    lines = "\n".join(map(json.dumps, answers))
    (directory / "answers.jsonl").write_text(lines, encoding="utf-8")
    flags = ("--yolo", "--script", "answers.jsonl")
    return Terminal(PROGRAM, *flags, directory=directory, size=(40, 120), compiled=compiled)


@pytest.mark.slow
def test_a_server_in_a_workspace_elsewhere_is_noted_at_the_prompt_and_opened(
    tmp_path: Path, compiled: Path
) -> None:
    (tmp_path / "answers.jsonl").touch()
    flags = ("--workspace", f"cmd:sh # {tmp_path}", "--script", "answers.jsonl")
    terminal = Terminal(
        PROGRAM, *flags, directory=tmp_path, size=(40, 120), compiled=compiled
    )
    terminal.until("›")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        terminal.until(f"Port {port} listens in the workspace: /ports {port} opens it")
        terminal.type(f"/ports {port}" + ENTER)
        terminal.until(f"Port {port} there is open: http://place-")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0


@pytest.mark.slow
def test_ctrl_b_moves_the_running_command_to_the_background(
    tmp_path: Path, compiled: Path
) -> None:
    command = "echo be''gun; until test -e go; do sleep 0.01; done; echo built"
    call = {"tool": "bash", "arguments": {"command": command}}
    terminal = open_terminal(tmp_path, compiled, {"calls": [call]}, {"text": "I go on."})
    terminal.until("›")
    terminal.type("Build it." + ENTER)
    terminal.until("begun")
    terminal.type("\x02")
    terminal.until("I go on.")
    terminal.until("1 in background ›")
    terminal.type("/background move" + ENTER)
    terminal.until("no command of this session is running")
    (tmp_path / "go").touch()
    terminal.until("background-1 ended: exit code 0")
    terminal.wait_for_prompt("bypass ›")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert f"  └ background-1 runs in the background: {command}" in terminal.rows


@pytest.mark.slow
def test_an_output_match_wakes_the_idle_agent_and_an_attached_terminal_shows_it(
    tmp_path: Path, compiled: Path
) -> None:
    terminal = open_terminal(
        tmp_path,
        compiled,
        deferred_answer("monitor", command=WAITS, until="ready|Error"),
        {"text": "I wait for it."},
        {"text": "It is up now."},
    )
    terminal.until("›")
    terminal.type("Tell me when it is up." + ENTER)
    terminal.until("I wait for it.")
    terminal.until("1 in background ›")
    joined = Terminal(PROGRAM, "attach", "last", directory=tmp_path, compiled=compiled)
    joined.until("1 in background ›")
    terminal.type("half a wor")
    terminal.until("half a wor")
    (tmp_path / "go").touch()
    terminal.until("It is up now.")
    joined.until("It is up now.")
    joined.wait_for_prompt("bypass 1 in background ›")
    joined.type("/quit" + ENTER)
    assert joined.end() == 0
    assert "Ended with the session" not in joined.text
    terminal.until("1 in background › half a wor")
    terminal.type("\x15/quit" + ENTER)

    assert terminal.end() == 0
    assert f"Ended with the session: background-1 ({WAITS})" in terminal.rows
