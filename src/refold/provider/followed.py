"""What follows from a talk, kept up to date while the talk grows.

A request at step 2,000 must cost what one at step 10 costs. What all of a talk
decides is folded here message by message, and each message is looked at once. A
talk that went back, or is another one, is folded from its beginning. Which talks
are the same is judged as in `encoded`: by the very objects.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from refold.values.log import Log
from refold.values.messages import Spoken

State = TypeVar("State")


class Followed(Generic[State]):
    """`step` says what one more message makes of what followed from those before."""

    def __init__(self, start: State, step: Callable[[State, Spoken], State]) -> None:
        self._start, self._step = start, step
        self._state = start
        self._known: tuple[Spoken, ...] = ()  # the first and the last that were seen
        self._length = 0

    def of(self, talk: Log[Spoken]) -> State:
        if not self._goes_on(talk):
            self._state, self._length = self._start, 0
        for spoken in talk[self._length :]:
            self._state = self._step(self._state, spoken)
        self._length = len(talk)
        self._known = (talk[0], talk[-1]) if talk else ()
        return self._state

    def _goes_on(self, talk: Log[Spoken]) -> bool:
        if not self._known or self._length > len(talk):
            return False
        first, last = self._known
        return talk[self._length - 1] is last and talk[0] is first
