"""Chooses where the sessions of a start are stored: on this machine or in a database."""

import os
from typing import TYPE_CHECKING

from refold.config.paths import Paths
from refold.journal.journal_directory import JournalDirectory
from refold.journal.session_index import SessionIndex

if TYPE_CHECKING:
    from refold.cluster.database import Database
    from refold.cluster.sessions import PostgreSQLSessions


def session_index(paths: Paths) -> SessionIndex:
    """Return access to the sessions of this user.

    They are on this machine, or in the database that the variable REFOLD_SESSIONS names.
    """
    root = paths.data / "sessions"
    if not paths.sessions:
        return JournalDirectory(root)
    from refold.cluster.database import database  # imported late: an extra that few use

    return tenant_sessions(paths, database(paths.sessions, paths.tenant))


def tenant_sessions(paths: Paths, database: "Database") -> "PostgreSQLSessions":
    """Return access to the sessions of the tenant of `database`.

    Their blobs are in the bucket that the variable REFOLD_BUCKET names.
    """
    from refold.cluster.bucket import tenant_objects
    from refold.cluster.sessions import PostgreSQLSessions

    objects = None
    if paths.bucket:
        objects = tenant_objects(paths.bucket, database.tenant, os.environ)
    return PostgreSQLSessions(database, paths.data / "sessions", objects)
