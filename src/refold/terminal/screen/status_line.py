"""The status while the model works: a line that is erased later, or on `plain` a line now and then.

Nothing here is recorded.
"""

from collections.abc import Callable, Sequence
from math import ceil

from refold.console.printer import Printer
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration
from refold.views.screen.status import Status, attempt_text
from refold.views.styled import Line

_SILENCE_SECONDS = 10.0  # seconds of silence before a plain display prints the status
_WORDS_KEY = "words"  # the key of the response being written; calls use their ids
_STEERING_HINT = "type a message for the next step · ctrl+c to stop or redirect"


class StatusLine:
    """`clock` gives seconds that only go forward."""

    def __init__(self, clock: Callable[[], float], wheel: str) -> None:
        self._clock, self._wheel = clock, wheel
        self._what, self._since, self._status = "", 0.0, Status()
        self._until = 0.0  # when the wait is over; 0: unknown
        self._tails: dict[str, str] = {}  # the last line of what each open call prints

    @property
    def activity(self) -> str:
        return self._what

    def set_activity(
        self,
        activity: str,
        seconds: float = 0.0,
        status: Status = Status(),  # noqa: B008 - frozen
    ) -> None:
        """Set the activity, or "" for none. `seconds` is the wait before a retry.

        `status` has the number of that retry.
        """
        self._what, self._since, self._status = activity, self._clock(), status
        self._until = self._since + seconds if seconds else 0.0

    def set_output(self, key: str, text: str) -> None:
        """Set the output of `key`; its last line is shown beside the activity."""
        lines = [part for part in text.replace("\r", "\n").split("\n") if part.strip()]
        if lines:
            self._tails[key] = escape_to_one_line(lines[-1].strip())

    def forget_output(self, key: str) -> None:
        self._tails.pop(key, None)

    def set_unprinted_text(self, text: str) -> None:
        """Set the last words written but not printed yet; "" for none."""
        if text:
            self.set_output(_WORDS_KEY, text)
        else:
            self.forget_output(_WORDS_KEY)

    def clear(self) -> None:
        self._what, self._tails = "", {}

    def line(self, waiting: str = "", line_below: str = "", *, hint: bool = True) -> Line:
        """Return the status line.

        `waiting` counts messages that the model has not seen yet, `line_below` the running
        subagents. With `hint`, the line says that the user can type, and what.
        """
        writes = _WORDS_KEY in self._tails
        if not (self._what or line_below or writes):
            return ()
        spent = self._clock() - self._since
        turned = self._wheel[int(spent * 10) % len(self._wheel)]
        tail = next(reversed(self._tails.values()), _STEERING_HINT if hint else "")
        activity = self._what or ("writing" if writes else "waiting")
        if self._until:
            left = max(0.0, self._until - self._clock())
            shown: Line = (("accent", turned), ("dim", f" retrying in {ceil(left)} s  "))
            if self._status.attempt:
                activity = attempt_text(self._status, left)
                shown = (("accent", turned), ("warn", f" {activity}  "))
                tail = escape_to_one_line(self._status.reason)
        else:
            shown = (("accent", turned), ("dim", f" {activity} {duration(spent)}  "))
        if line_below:
            shown = (*shown, ("plain", f"{line_below}  "))
        return (*shown, *((("person", f"{waiting}  "),) if waiting else ()), ("dim", tail))


# Progress on terminals that cannot erase a line: the status is printed now and then. The
# pause doubles each time, which keeps a log short and still shows a user of a screen reader
# that work continues.
class PlainProgress:
    """`clock` gives seconds that only go forward."""

    def __init__(self, printer: Printer, clock: Callable[[], float]) -> None:
        self._printer, self._clock = printer, clock
        self._written, self._since, self._due = -1, 0.0, _SILENCE_SECONDS

    def show(self, status: Line, lines_above: Sequence[Line] = ()) -> None:
        """Show the status line, and `lines_above` above it if they can be erased."""
        now, printer = self._clock(), self._printer
        printer.show_status(*lines_above, status)
        if printer.capabilities.moves:
            return
        if printer.written != self._written:
            self._written, self._since, self._due = printer.written, now, _SILENCE_SECONDS
        elif status and printer.is_at_line_start and now - self._since >= self._due:
            printer.print_text("".join(text for _, text in status[1:]).strip(), "dim")
            self._written, self._due = printer.written, self._due * 2
