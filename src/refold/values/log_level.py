"""How much a line of the log matters, and how one is told. Who keeps them is `logs`."""

from typing import Literal, Protocol, TypeAlias

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")


class Tell(Protocol):
    """Takes one line for the log. It never raises, and what it takes need not be clean."""

    def __call__(self, level: Level, what: str, session: str = "") -> None: ...


def quiet(level: Level, what: str, session: str = "") -> None:
    """Where there is no log."""
