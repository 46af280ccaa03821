"""The status during work: one line that is replaced, or occasional lines on a plain terminal.

The status is not recorded in the journal.
"""

from collections.abc import Callable, Sequence
from math import ceil

from refold.console.printer import Printer
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration
from refold.views.screen.status import Status, attempt_text
from refold.views.styled import Line, Piece

_SPINNER_FRAMES_PER_SECOND = 10
_SILENCE_SECONDS = 10.0  # of silence; then a plain display prints the status
_WORDS_KEY = "words"  # the key of the response being written; calls use their ids
_STEERING_HINT = "type a message for the next step · ctrl+c to stop or redirect"


class StatusLine:
    """The content of the status line. `clock` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float], wheel: str) -> None:
        self._clock, self._spinner_frames = clock, wheel
        self._activity, self._since, self._status = "", 0.0, Status()
        self._until = 0.0  # when the wait is over; 0 if unknown
        self._tails: dict[str, str] = {}  # the last line of each open call's output

    @property
    def activity(self) -> str:
        return self._activity

    def set_activity(
        self,
        activity: str,
        seconds: float = 0.0,
        status: Status = Status(),  # noqa: B008 - frozen
    ) -> None:
        """Set the current activity; "" for none.

        Before a model call is tried again, `seconds` is the wait, and `status` has the number
        of the attempt.
        """
        self._activity, self._since, self._status = activity, self._clock(), status
        self._until = self._since + seconds if seconds else 0.0

    def set_output(self, key: str, text: str) -> None:
        """Set the newest output of the call with the id `key`. Its last line is shown in the
        status.
        """
        lines = [part for part in text.replace("\r", "\n").split("\n") if part.strip()]
        if lines:
            self._tails[key] = escape_to_one_line(lines[-1].strip())

    def forget_output(self, key: str) -> None:
        self._tails.pop(key, None)

    def set_unprinted_text(self, text: str) -> None:
        """Set the words of the response that have arrived but are not printed yet; "" for none."""
        if text:
            self.set_output(_WORDS_KEY, text)
        else:
            self.forget_output(_WORDS_KEY)

    def clear(self) -> None:
        self._activity, self._tails = "", {}

    def line(self, waiting: str = "", line_below: str = "", *, hint: bool = True) -> Line:
        """Return the status line; () if there is nothing to report.

        It shows the activity and its duration, or the wait before the next attempt, and ends with
        the last line of the newest output.

        `waiting` says how many messages the model has not seen yet, `line_below` names the
        running subagents. With `hint`, the line says that the user can type a message.
        """
        is_writing = _WORDS_KEY in self._tails
        if not (self._activity or line_below or is_writing):
            return ()
        now = self._clock()
        elapsed = now - self._since
        frame = int(elapsed * _SPINNER_FRAMES_PER_SECOND) % len(self._spinner_frames)
        tail = next(reversed(self._tails.values()), _STEERING_HINT if hint else "")
        if self._until:
            seconds_left = max(0.0, self._until - now)
            activity: Piece = ("dim", f" retrying in {ceil(seconds_left)} s  ")
            if self._status.attempt:
                activity = ("warn", f" {attempt_text(self._status, seconds_left)}  ")
                tail = escape_to_one_line(self._status.reason)
        else:
            text = self._activity or ("writing" if is_writing else "waiting")
            activity = ("dim", f" {text} {duration(elapsed)}  ")
        shown: Line = (("accent", self._spinner_frames[frame]), activity)
        if line_below:
            shown = (*shown, ("plain", f"{line_below}  "))
        if waiting:
            shown = (*shown, ("person", f"{waiting}  "))
        return (*shown, ("dim", tail))


# Progress on terminals that cannot erase a line: the status is printed occasionally. The
# pause doubles each time, which keeps a log short and still tells a user of a screen reader
# that work continues.
class PlainProgress:
    """Shows the status; on a terminal that cannot erase it, prints it only occasionally."""

    def __init__(self, printer: Printer, clock: Callable[[], float]) -> None:
        self._printer, self._clock = printer, clock
        self._written, self._since, self._pause = -1, 0.0, _SILENCE_SECONDS

    def show(self, status: Line, lines_above: Sequence[Line] = ()) -> None:
        """Show the status line, with `lines_above` above it.

        On a terminal that cannot erase them, print only the status line, and only after a pause
        without other output. The pause doubles each time.
        """
        now, printer = self._clock(), self._printer
        printer.show_status(*lines_above, status)
        if printer.capabilities.moves:
            return
        if printer.written != self._written:  # there was other output
            self._written, self._since, self._pause = printer.written, now, _SILENCE_SECONDS
            return
        is_due = now - self._since >= self._pause
        if status and printer.is_at_line_start and is_due:
            _spinner, *pieces = status
            printer.print_text("".join(text for _, text in pieces).strip(), "dim")
            self._written, self._pause = printer.written, self._pause * 2
