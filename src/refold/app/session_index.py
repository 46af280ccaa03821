"""Chooses the adapter that stores the sessions of a start, in one place."""

from refold.config.paths import Paths
from refold.journal.home import JournalDirectory
from refold.journal.session_index import SessionIndex


def session_index(paths: Paths) -> SessionIndex:
    """The sessions of this user on this machine."""
    return JournalDirectory(paths.data / "sessions")
