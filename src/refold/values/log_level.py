"""Levels of the log, and the function that takes a line. `logs` writes the file."""

from typing import Literal, Protocol, TypeAlias

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")


class WriteLog(Protocol):
    """Takes a line for the log. Never raises, and redacts what it gets."""

    def __call__(self, level: Level, message: str, session: str = "") -> None: ...


def discard_line(level: Level, message: str, session: str = "") -> None:
    """Drop the line: the default where no log is written."""
