"""The terminal this process sits at: paper to print on, and a way to be heard."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from refold.cli.terminal.display.look import look
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.keyboard.completion import Complete
from refold.cli.terminal.keyboard.plain import Plain
from refold.cli.terminal.reading import TerminalReader
from refold.views.escape import on_one_line

_NO_STATUS = "The display is plain: the terminal {!r} (TERM) cannot take a line back, as status does."


def this_terminal(
    *,
    color: bool | None = None,
    history: Path | None = None,
    complete: Complete | None = None,
    cycle: Callable[[], None] = lambda: None,
    display: str = "auto",
    theme: str = "auto",
) -> tuple[Paper, TerminalReader]:
    """The line editor where the terminal can do it, whole lines elsewhere."""
    seen = look(sys.stdout, os.environ, color, wanted=display, theme=theme)
    paper = Paper(sys.stdout, seen)
    if seen.display != display == "status":
        name = on_one_line(os.environ.get("TERM", ""))
        paper.say(_NO_STATUS.format(name), "warn")
    if seen.display != "line" or not sys.stdin.isatty():
        return paper, Plain(paper)
    from refold.cli.terminal.keyboard.lively import Lively

    return paper, Lively(paper, history=history, complete=complete, cycle=cycle)
