"""What takes long, told now and then, where no line can be drawn and taken back.

After a silence, and then each time after twice as long: a log stays short, and somebody
who listens to a screen reader knows that something still goes on.
"""

from collections.abc import Callable

from refold.cli.terminal.display.paper import Paper
from refold.views.styled import Line

_FIRST = 10.0  # seconds


class Aloud:
    """`clock` gives seconds that only go forward."""

    def __init__(self, paper: Paper, clock: Callable[[], float]) -> None:
        self._paper, self._clock = paper, clock
        self._written, self._since, self._due = -1, 0.0, _FIRST

    def show(self, status: Line) -> None:
        """This is being done: the wheel of a status line, and words."""
        now, paper = self._clock(), self._paper
        paper.status(status)
        if paper.look.moves:
            return
        if paper.written != self._written:
            self._written, self._since, self._due = paper.written, now, _FIRST
        elif status and paper.at_start and now - self._since >= self._due:
            paper.say("".join(text for _, text in status[1:]).strip(), "dim")
            self._written, self._due = paper.written, self._due * 2
