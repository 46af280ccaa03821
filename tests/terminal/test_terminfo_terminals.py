"""The display `status` on the terminals of the terminfo database, and `plain` everywhere.

What is sent is read byte by byte: text, newlines, and exactly the strings that the
database has for that terminal, as `tput` gives them. What pyte understands is looked at
on its screen as well.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import STAGE, Terminal

StartTerminal = Callable[..., Terminal]
NAMES = ["cr", "el", "sgr0", "bold", "dim", "sitm", "smul", "rev", "cuu1",
         *(f"setaf {number}" for number in range(16))]  # fmt: skip
# Of ncurses-base, which is on every Debian.
BASE = [
    "Eterm", "Eterm-color", "ansi", "cons25", "cygwin", "hurd", "linux", "mach", "mach-color",
    "pcansi", "rxvt", "rxvt-unicode", "screen", "screen-256color", "sun", "tmux",
    "tmux-256color", "vt100", "vt102", "vt220", "vt52", "wsvt25", "xterm", "xterm-256color",
    "xterm-mono",
]  # fmt: skip
# Of ncurses-term, which has thousands.
MORE = [
    "alacritty", "aixterm", "eterm-color", "foot", "hp2392", "kitty", "konsole", "putty",
    "st-256color", "tvi950", "wy60", "wyse350", "iris-ansi", "dtterm",
]  # fmt: skip
# Our own entry, for features that the others lack.
SOURCES = r"""
phone|as of a telephone,
	am, cols#40, colors#8, bold=\E[1m, cr=^M, cuu1=\E[A, el=\E[K,
	setaf=\E[3%p1%dm, sgr0=\E[m,
slow|with padding everywhere,
	am, colors#8, bold=\E[1m$<2>, cr=^M$<5*>, el=\E[K$<3/>, sgr0=\E[m$<2/>,
	setaf=\E[3%p1%dm$<1>,
cookies|colours take a cell,
	am, colors#8, xmc#1, bold=\E[1m, cr=^M, el=\ET, sgr0=\E[m, setaf=\E[3%p1%dm,
oddly|other orders for everything,
	am, colors#8, bold=\E&dB, cr=^M, el=\EK, sgr0=\E&d@, setaf=\E&v%p1%dS,
noback|a line cannot be taken back,
	am, cr=^M, bold=\E[1m, sgr0=\E[m,
paper|a printer,
	hc, cr=^M, el=\E[K, bold=\E[1m, sgr0=\E[m,
eight|orders of eight bits,
	am, cr=^M, el=\233K, bold=\2331m, sgr0=\233m,
"""
OURS = ["phone", "slow", "cookies", "oddly"]
WITHOUT = ["noback", "paper", "eight"]
PRINTABLE = re.compile(r"[^\n\x20-\x7e\u00a0-\U0010ffff]")


@pytest.fixture(scope="session")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a terminfo database of our own."""
    directory = tmp_path_factory.mktemp("terminfo")
    (directory / "source").write_text(SOURCES, encoding="utf-8")
    subprocess.run(
        ["tic", "-x", "-o", str(directory), str(directory / "source")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return directory


@pytest.fixture
def start_terminal(
    tmp_path: Path, compiled: Path, entries: Path
) -> Iterator[StartTerminal]:
    (tmp_path / "hello.py").write_text('print("hi")\n', encoding="utf-8")
    terminals: list[Terminal] = []

    def start(story: str, term: str, **env: object) -> Terminal:
        own = {"TERMINFO_DIRS": f"{entries}:", "TERM": term, "COLORTERM": "", **env}
        terminal = Terminal(STAGE, story, directory=tmp_path, compiled=compiled, **own)  # type: ignore[arg-type]
        terminals.append(terminal)
        return terminal

    yield start
    for at in terminals:
        at.child.close(force=True)


def strings(term: str, entries: Path) -> list[str]:
    """Return what the database has for this terminal, longest first; [] if it has no entry."""
    loop = f'for n in {" ".join(map(repr, NAMES))}; do tput -T "$0" $n; echo "|"; done'
    done = subprocess.run(
        ["bash", "-c", f"tput -T $0 longname >/dev/null || exit 1; {loop}", term],
        capture_output=True, check=False, timeout=60,
        env={"TERMINFO_DIRS": f"{entries}:", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    if done.returncode == 1:
        return []
    parts = done.stdout.decode("latin-1").replace("\0", "").split("|\n")
    return sorted({text for text in parts if text}, key=len, reverse=True)


def work_through(terminal: Terminal) -> None:
    """Words, a question, work with a status, a stop with a new direction, and the end."""
    terminal.wait_for_text("Ctrl+D leaves")
    terminal.wait_for_text("› ")
    terminal.type("go\n")
    terminal.wait_for_text("no, and why")
    terminal.type("y\n")
    terminal.wait_for_text("running")
    terminal.wait_for_text("› ", since=terminal.sent_bytes)
    terminal.type("exit\n")
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", [*BASE, *MORE, *OURS])
def test_only_control_strings_of_the_terminfo_entry_are_sent_to_a_terminal(
    start_terminal: StartTerminal, entries: Path, term: str
) -> None:
    if not (known := strings(term, entries)):
        pytest.skip(f"optional: terminfo has no entry {term} here (ncurses-term)")
    terminal = start_terminal("busy", term, SHOWN="status")

    work_through(terminal)

    left = terminal.raw.replace("\r\n", "\n")
    for text in known:
        left = left.replace(text, "")
    assert PRINTABLE.findall(left) == []
    assert "thinking" not in terminal.text or "\x1b[K" not in known
    if "\r\x1b[K" in terminal.raw:  # pyte knows this one
        assert "running" not in terminal.text
        assert [row for row in terminal.rows if row][-1].startswith("To resume")
        assert "There: one, two." in [row.replace("`", "") for row in terminal.rows]


@pytest.mark.slow
@pytest.mark.parametrize("term", WITHOUT)
def test_a_terminal_without_cursor_movement_gets_the_plain_display(
    start_terminal: StartTerminal, term: str
) -> None:
    terminal = start_terminal("busy", term, SHOWN="status")
    terminal.wait_for_text("Using the plain display")
    terminal.wait_for_text("> ")
    terminal.type("exit\n")

    assert terminal.end() == 0
    assert PRINTABLE.findall(terminal.raw.replace("\r\n", "\n")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "shown"), [("vt52", "status"), ("oddly", "status"), ("noback", "plain"),
                        ("vt100", "line"), ("no-such-terminal", "line")]
)  # fmt: skip
def test_the_display_is_chosen_by_terminal_type(
    start_terminal: StartTerminal, term: str, shown: str
) -> None:
    terminal = start_terminal("talk", term)
    terminal.wait_for_text("> " if shown == "plain" else "›")
    terminal.type("/quit\r")

    assert terminal.end() == 0
    drawn = "\x1b[?2004h" in terminal.raw
    assert drawn == (shown == "line")


YES, MAY = ("no, and why (n)", "y\n"), "no, and why (n)"
ANSWERS: dict[str, list[tuple[str, str]]] = {
    "edit": [("> ", "go\n"), YES, (MAY, "n\n"), ("why not?", "no time\n")],
    "hostile": [("> ", "go\n")],
    "hidden": [("> ", "go\n"), (MAY, "v\n"), (MAY, "n\n"), ("why not?", "\n")],
    "ask": [("> ", "go\n"), ("answer > ", "9\n"), ("answer > ", "2\n"), ("answer > ", "1 3\n"),
            ("answer > ", "\x1b\n")],
    "plan": [("> ", "/plan go\n"), ("esc later", "4\n"), ("feedback > ", "\x1b\n"),
             ("esc later", "y\n"), YES],
    "todos": [("> ", "go\n")],
    "costly": [("> ", "go\n"), (" s\r\n", "/cost\n"), ("> ", "/context\n"), ("> ", "\n")],
    "talk": [("> ", "go\n"), (" s\r\n", "/rewind\n"), ("> ", "\x1b\n"), ("> ", "go\n")],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shown", [("dumb", "auto"), ("xterm-256color", "plain")])
@pytest.mark.parametrize("columns", [80, 20])
@pytest.mark.parametrize("story", sorted(ANSWERS))
def test_the_plain_display_prints_only_printable_text_and_newlines(
    start_terminal: StartTerminal, story: str, columns: int, shown: tuple[str, str]
) -> None:
    term, display = shown
    terminal = start_terminal(
        story, term, size=(60, columns), SHOWN=display, NOTIFY="0.0001"
    )
    for text, result in ANSWERS[story]:
        since = terminal.sent_bytes
        terminal.wait_for_text(text, since=since)
        terminal.type(result)
    terminal.wait_for_text(" s\r\n\r\n> ", since=terminal.sent_bytes)
    terminal.type("exit\n")

    assert terminal.end() == 0
    typed = terminal.raw.replace("\r\n", "\n").replace("^[", "")
    assert PRINTABLE.findall(typed) == []
