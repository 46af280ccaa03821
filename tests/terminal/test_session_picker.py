"""Picking a session in a real terminal, by keys and by numbers."""

import os
from pathlib import Path

import pytest

from refold.config.paths import paths
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Event, Said, SessionStarted
from refold.journal.journal_directory import JournalDirectory
from tests.terminal.pty_terminal import ENTER, ESC, Terminal

STAGE = Path(__file__).with_name("stage_picking.py")
UP, DOWN = "\x1b[A", "\x1b[B"
TITLES = ("Mend the roof", "Paint the door", "Plant a tree")


@pytest.fixture
def project_directory(tmp_path: Path) -> Path:
    """Return a directory with three sessions; in the first, an umbrella was spoken of."""
    home = JournalDirectory(paths(os.environ).data / "sessions")
    for n, title in enumerate(TITLES):
        head, chunks = Head(), list[bytes]()
        events: list[Event] = [SessionStarted(str(tmp_path)), Said(title)]
        for event in [*events, Said("umbrella" if not n else "sun")]:
            line, head = codec.encode(Entry(head.seq + 1, event, at=n), head)
            chunks.append(line + b"\n")
        file = home.path(f"s{n}") / "events.jsonl"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(chunks))
        os.utime(file, (1e9 + n, 1e9 + n))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "picked"),
    [
        ((ENTER,), "s2"),
        ((DOWN, DOWN, DOWN, UP, ENTER), "s1"),
        (("door", ENTER), "s1"),
        ((ESC,), "none"),
        (("\x03",), "none"),
        (("\x04",), "none"),
    ],
    ids=["enter", "arrows", "typed", "esc", "ctrl+c", "ctrl+d"],
)
def test_keys_pick_a_session_and_the_list_is_erased(
    project_directory: Path, compiled: Path, keys: tuple[str, ...], picked: str
) -> None:
    terminal = Terminal(STAGE, "line", directory=project_directory, compiled=compiled)
    terminal.until("Mend the roof")

    for key in keys:
        terminal.type(key)
    terminal.until(f"picked: {picked}.")

    assert terminal.end() == 0
    assert [row for row in terminal.rows if row] == [f"picked: {picked}."]


@pytest.mark.slow
def test_typing_finds_sessions_by_text_in_their_messages(
    project_directory: Path, compiled: Path
) -> None:
    terminal = Terminal(STAGE, "line", directory=project_directory, compiled=compiled)
    terminal.until("Mend the roof")

    terminal.type("umbre")
    terminal.wait_until_gone("Plant a tree")
    terminal.until("Mend the roof")
    terminal.type(ENTER)
    terminal.until("picked: s0.")

    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("display", ["plain", "status"])
def test_sessions_are_picked_by_number_in_a_terminal_without_cursor_movement(
    project_directory: Path, compiled: Path, display: str
) -> None:
    terminal = Terminal(STAGE, display, directory=project_directory, compiled=compiled)
    terminal.until("Enter to leave:")
    terminal.type("zebra\n")
    terminal.until("Nothing matches 'zebra'.")
    terminal.type("the\n")
    terminal.type("2\n")
    terminal.until("picked: s0.")

    assert terminal.end() == 0
    assert display != "plain" or "\x1b" not in str(terminal.raw)


@pytest.mark.slow
def test_an_empty_line_leaves_the_session_list(
    project_directory: Path, compiled: Path
) -> None:
    terminal = Terminal(STAGE, "plain", directory=project_directory, compiled=compiled)
    terminal.until("Enter to leave:")

    terminal.type("\n")
    terminal.until("picked: none.")

    assert terminal.end() == 0
