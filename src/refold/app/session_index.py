"""Chooses the adapter that stores the sessions of a start, in one place."""

import os
from typing import TYPE_CHECKING

from refold.config.paths import Paths
from refold.journal.home import JournalDirectory
from refold.journal.session_index import SessionIndex

if TYPE_CHECKING:
    from refold.cluster.database import Database
    from refold.cluster.sessions import PostgreSQLSessions


def session_index(paths: Paths) -> SessionIndex:
    """The sessions of this user: on this machine, or in the database of REFOLD_SESSIONS."""
    root = paths.data / "sessions"
    if not paths.sessions:
        return JournalDirectory(root)
    from refold.cluster.database import database  # an extra, which few use

    return tenant_sessions(paths, database(paths.sessions, paths.tenant))


def tenant_sessions(paths: Paths, database: "Database") -> "PostgreSQLSessions":
    """The sessions of the tenant of `database`, with their blobs in the bucket of REFOLD_BUCKET."""
    from refold.cluster.bucket import tenant_objects
    from refold.cluster.sessions import PostgreSQLSessions

    objects = None
    if paths.bucket:
        objects = tenant_objects(paths.bucket, database.tenant, os.environ)
    return PostgreSQLSessions(database, paths.data / "sessions", objects)
