"""Tells whether the user was typing when a key came: such a key must not answer a question.

`views.question_keys` decides what the keys of a question do.
"""

import math
from collections.abc import Callable

from refold.views.question_keys import CALM_SECONDS


class TypingPace:
    """The times of key presses, by a monotonic `clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = self._before = -math.inf

    def note_key(self) -> bool:
        """Note a key. Return True if none had come for a while."""
        self._before, self._last = self._last, self._clock()
        return self.was_calm

    def forget_key(self) -> None:
        """Forget the last key: it was not typing."""
        self._last = self._before

    @property
    def was_calm(self) -> bool:
        """Whether no key had come for a while before the last one."""
        return self._last - self._before >= CALM_SECONDS

    @property
    def is_calm(self) -> bool:
        return self._clock() - self._last >= CALM_SECONDS
