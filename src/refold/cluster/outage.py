"""Reports an outage of a server once when it begins and once when it ends.

Callers may try to reach the server as often as they like.
"""

from collections.abc import Callable


class Outage:
    """Whether one server is away. `report` is called with a line when this changes."""

    def __init__(self, place: str, report: Callable[[str], None] = lambda _: None) -> None:
        self._place = place
        self.report = report
        self._is_away = False

    def begin(self, error: str) -> None:
        """Note that the server could not be reached, and report `error` if it was reached
        before.
        """
        if not self._is_away:
            self._is_away = True
            self.report(error)

    def end(self) -> None:
        """Note that the server answered, and report this after an outage."""
        if self._is_away:
            self._is_away = False
            self.report(f"{self._place} can be reached again")
