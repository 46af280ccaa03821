"""The levels of the log, and the type of the function that writes a line. `logs` writes the
file.
"""

from typing import Literal, Protocol, TypeAlias

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")


class WriteLog(Protocol):
    """Writes a line to the log, with secrets redacted. Never raises an error."""

    def __call__(self, level: Level, message: str, session: str = "") -> None: ...


def discard_line(level: Level, message: str, session: str = "") -> None:
    """Do nothing: the `WriteLog` to use where no log is written."""
