"""What is being done right now, as one line that will be taken back.

Only for the eye: nothing in here is recorded or printed to stay.
"""

from collections.abc import Callable

from refold.views.escape import on_one_line
from refold.views.number_format import duration
from refold.views.styled import Line

_WORDS = "words"  # the key of what is written; calls have their ids
_HINT = "type a message for the next step · ctrl+c to stop or redirect"


class Doing:
    """`clock` gives seconds that only go forward."""

    def __init__(self, clock: Callable[[], float], wheel: str) -> None:
        self._clock, self._wheel = clock, wheel
        self._what, self._since = "", 0.0
        self._tails: dict[str, str] = {}  # the last line of what each open call prints

    @property
    def what(self) -> str:
        return self._what

    def now(self, what: str) -> None:
        """This begins. "" for nothing."""
        self._what, self._since = what, self._clock()

    def tail(self, key: str, text: str) -> None:
        """What `key` prints: its last line is shown beside what is done."""
        lines = [part for part in text.replace("\r", "\n").split("\n") if part.strip()]
        if lines:
            self._tails[key] = on_one_line(lines[-1].strip())

    def no_tail(self, key: str) -> None:
        self._tails.pop(key, None)

    def writes(self, words: str) -> None:
        """The last words of what is written and not printed yet; "" for none."""
        if words:
            self.tail(_WORDS, words)
        else:
            self.no_tail(_WORDS)

    def over(self) -> None:
        self._what, self._tails = "", {}

    def line(self, waiting: str = "", below: str = "") -> Line:
        """`waiting`: what the person said and nobody has heard yet; `below`: who works."""
        writes = _WORDS in self._tails
        if not (self._what or below or writes):
            return ()
        spent = self._clock() - self._since
        turned = self._wheel[int(spent * 10) % len(self._wheel)]
        tail = next(reversed(self._tails.values()), _HINT)
        what = self._what or ("writing" if writes else "waiting")
        shown: Line = (("accent", turned), ("dim", f" {what} {duration(spent)}  "))
        if below:
            shown = (*shown, ("plain", f"{below}  "))
        return (*shown, *((("person", f"{waiting}  "),) if waiting else ()), ("dim", tail))
