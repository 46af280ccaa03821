"""A paste that comes while a turn begins or ends, cut after each of its bytes but the first.

The first is Esc, which is a key when nothing follows it soon: on a busy machine, nothing does.
"""

import fcntl
import os
import struct
import termios
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import CTRL_C, ENTER, Terminal
from tests.terminal.test_typing_stories import StartTerminal, paste, start_terminal

__all__ = ["start_terminal"]  # a fixture
PASTE = paste("one\ry\rtwé")  # each line would answer a question, or be sent
LENGTH = len(PASTE.encode())

pytestmark = pytest.mark.slow


def has_read_all(slave: int) -> bool:
    """Return whether all that was typed has been read."""
    waiting = fcntl.ioctl(slave, termios.FIONREAD, struct.pack("i", 0))
    return struct.unpack("i", waiting) == (0,)


def start_turn(start_terminal: StartTerminal, directory: Path) -> Terminal:
    """A turn lasts until there is a file "go"; the next ones ask nothing."""
    text = "touch begun; until rm go 2>&-; do sleep 0.02; done"
    (directory / "held.sh").write_text(text, encoding="utf-8")
    terminal = start_terminal("held")
    terminal.type("go" + ENTER)
    terminal.choose("this session")
    terminal.wait_for_path(directory / "begun")
    return terminal


@pytest.mark.parametrize("first", range(4))
def test_a_paste_is_complete_when_a_turn_begins_or_ends_within_it(
    start_terminal: StartTerminal, tmp_path: Path, first: int
) -> None:
    terminal = start_turn(start_terminal, tmp_path)
    slave = os.open(f"/proc/{terminal.child.pid}/fd/0", os.O_RDWR | os.O_NOCTTY)
    path, go = tmp_path / "begun", tmp_path / "go"
    go.touch()
    terminal.wait_for_prompt()

    for cut in range(2 + first, LENGTH, 4):
        one, other = PASTE.encode()[:cut], PASTE.encode()[cut:]
        path.unlink()
        os.write(terminal.child.child_fd, b"go\r" + one)
        terminal.wait_for_path(path)
        os.write(terminal.child.child_fd, other)
        terminal.until("› [pasted 3 lines]")
        terminal.type("\x15")  # Ctrl+U removes the draft, Esc would stop the turn
        terminal.wait_until_gone("[pasted")
        os.write(terminal.child.child_fd, one)
        while not has_read_all(slave):
            terminal.read()
        go.touch()
        terminal.wait_for_prompt()
        os.write(terminal.child.child_fd, other)
        terminal.until("› one\n  y\n  twé")
        terminal.type(CTRL_C)
        terminal.wait_for_prompt()
    os.close(slave)
    terminal.type("\x04")

    assert terminal.end() == 0


def test_an_empty_paste_is_ignored_and_text_typed_after_a_paste_is_kept(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_turn(start_terminal, tmp_path)
    terminal.type(paste("\x07"))
    terminal.type(paste("one") + " two")
    terminal.until("› one two")
    terminal.type("\x15")  # Ctrl+U removes the draft, Esc would stop the turn
    terminal.wait_until_gone("one two")
    (tmp_path / "go").touch()
    terminal.until("of window")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
