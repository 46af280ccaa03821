"""Chooses the adapter that stores the sessions of a start, in one place."""

from refold.config.paths import Paths
from refold.journal.home import JournalDirectory
from refold.journal.session_index import SessionIndex


def session_index(paths: Paths) -> SessionIndex:
    """The sessions of this user: on this machine, or in the database of REFOLD_SESSIONS."""
    root = paths.data / "sessions"
    if not paths.sessions:
        return JournalDirectory(root)
    from refold.cluster.database import database  # an extra, which few use
    from refold.cluster.sessions import PostgreSQLSessions

    return PostgreSQLSessions(database(paths.sessions, paths.tenant), root)
