"""The tool `notify`: sends a notice through the terminal and the desktop."""

import io
import os
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from refold.console.bell import show_desktop_notice
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from tests.terminal.test_conversation import ScriptedTerminal

CALL = ("notify", '{"message": "The tests\\n pass.\\u001b]0;x\\u0007"}')
PROGRAM = "#!/bin/sh\nprintf '%s\\n' \"$@\" >$0.heard\n"


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a desktop whose `notify-send` writes down what it is given."""
    program = tmp_path / "bin/notify-send"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":9")
    return program.with_name("notify-send.heard")


def test_the_notify_tool_notifies_through_the_terminal_and_the_desktop(
    tmp_path: Path, desktop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMUX", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-kitty")
    (tmp_path / "work").mkdir()
    terminal = ScriptedTerminal(tmp_path / "work", [CALL], "Done.")
    terminal.paper = Printer(
        terminal.out, replace(TerminalCapabilities(), moves=True, display="line")
    )

    terminal.tell("be quick", "/quit")

    text = "The tests pass.\\x1b]0;x\\x07"
    assert f"\x1b]99;;refold: {text}\x1b\\\x07" in terminal.out.getvalue()
    assert desktop.read_text() == f"--app-name=refold\n--\nrefold\n{text}\n"


def test_without_a_desktop_no_program_is_started(
    desktop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)

    anyio.run(show_desktop_notice, os.environ, "Look.")

    assert not desktop.exists()


def test_a_tool_other_than_notify_sends_no_desktop_notification(
    tmp_path: Path, desktop: Path
) -> None:
    (tmp_path / "work").mkdir()
    terminal = ScriptedTerminal(
        tmp_path / "work", [("think", '{"thought": "notify"}')], "Done."
    )
    terminal.paper = Printer(
        io.StringIO(), replace(TerminalCapabilities(), moves=True, display="line")
    )

    terminal.tell("be quick", "/quit")

    assert not desktop.exists()
