"""Finds the journals of sessions while refold runs."""

from pathlib import Path

_MAX_DEPTH = 3  # of the directory with the sessions, such as `.local/share/refold`


def find_journals(home: Path) -> list[Path]:
    """Return the journals of the sessions below `home`.

    Other directories are not searched: git creates and removes directories at any moment,
    and a search of everything fails when one of them disappears.
    """
    return [
        journal
        for depth in range(_MAX_DEPTH + 1)
        for journal in home.glob("*/" * depth + "sessions/*/events.jsonl")
    ]
