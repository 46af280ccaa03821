"""What takes long, told now and then, where no line can be drawn and taken back.

After a silence, and then each time after twice as long: a log stays short, and somebody
who listens to a screen reader knows that something still goes on.
"""

from collections.abc import Callable

from refold.terminal.screen.printer import Printer
from refold.views.styled import Line

_FIRST = 10.0  # seconds


class PlainProgress:
    """`clock` gives seconds that only go forward."""

    def __init__(self, printer: Printer, clock: Callable[[], float]) -> None:
        self._printer, self._clock = printer, clock
        self._written, self._since, self._due = -1, 0.0, _FIRST

    def show(self, status: Line) -> None:
        """This is being done: the wheel of a status line, and words."""
        now, printer = self._clock(), self._printer
        printer.status(status)
        if printer.look.moves:
            return
        if printer.written != self._written:
            self._written, self._since, self._due = printer.written, now, _FIRST
        elif status and printer.at_start and now - self._since >= self._due:
            printer.say("".join(text for _, text in status[1:]).strip(), "dim")
            self._written, self._due = printer.written, self._due * 2
