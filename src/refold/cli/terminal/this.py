"""The terminal this process sits at: a screen to print on and a way to be heard."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from refold.cli.terminal.completion import Complete
from refold.cli.terminal.look import look
from refold.cli.terminal.plain import Plain
from refold.cli.terminal.reading import Reading
from refold.cli.terminal.screen import Screen


def this_terminal(
    *,
    color: bool | None = None,
    history: Path | None = None,
    complete: Complete | None = None,
    cycle: Callable[[], None] = lambda: None,
) -> tuple[Screen, Reading]:
    """The line editor where the terminal can do it, whole lines elsewhere."""
    screen = Screen(sys.stdout, look(sys.stdout, os.environ, color))
    if not screen.look.moves or not sys.stdin.isatty():
        return screen, Plain(screen)
    from refold.cli.terminal.lively import Lively

    return screen, Lively(screen, history=history, complete=complete, cycle=cycle)
