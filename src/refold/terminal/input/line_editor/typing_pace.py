"""Decides whether a key was part of typed text: then it must not answer a question.

`views.question_keys` decides what the keys of a question do.
"""

import math
from collections.abc import Callable

from refold.views.question_keys import CALM_SECONDS


class TypingPace:
    """Knows the times of the last two keys, and so whether the user is typing.

    `clock` is a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = self._before = -math.inf

    def note_key(self) -> bool:
        """Record a key. Return whether no other key was pressed for `CALM_SECONDS` before it."""
        self._before, self._last = self._last, self._clock()
        return self.was_calm

    def forget_key(self) -> None:
        """Forget the last key, because it was not part of typed text."""
        self._last = self._before

    @property
    def was_calm(self) -> bool:
        """Whether no key was pressed for `CALM_SECONDS` before the last one."""
        return self._last - self._before >= CALM_SECONDS

    @property
    def is_calm(self) -> bool:
        """Whether no key was pressed within the last `CALM_SECONDS`."""
        return self._clock() - self._last >= CALM_SECONDS
