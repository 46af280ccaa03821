"""`refold sessions move`: moves sessions between this machine's files and a database.

The lines of a journal are copied unchanged, the copy is checked, and only then the source is
deleted. An interrupted move continues when the command is run again.
"""

import os
from argparse import Namespace

import anyio
from msgspec.structs import replace

from refold.app.session_index import session_index
from refold.config.paths import paths
from refold.errors import BadInput, Held, JournalError
from refold.headless.streams import write
from refold.journal.copy_session import copy_session
from refold.journal.session_index import SessionIndex
from refold.views.number_format import count_with_noun

TO_FILES = "files"


def run(index: SessionIndex, args: Namespace) -> int:
    """Move the sessions to a database, or from there to files. Return exit code 0."""
    places = paths(os.environ)
    url = "" if args.to == TO_FILES else args.to  # "": files
    if not url and not places.sessions:
        raise BadInput(
            "--to files: REFOLD_SESSIONS names no database to move sessions from, and the sessions of this "
            "machine are files already"
        )
    source = index
    if url == places.sessions:
        # this database is in use already, so the sessions that are left in files are moved
        source = session_index(replace(places, sessions=""))
    if bool(args.ids) == args.all:  # both or neither
        raise BadInput("name the sessions to move, or give --all")
    target = session_index(replace(places, sessions=url))
    chosen = source.sessions() if args.all else map(source.find, args.ids)
    sessions = [session.id for session in chosen]
    for session in sessions:
        if "/" in session:
            raise BadInput(f"{session} is a subagent and is moved with its parent")
    for session in sessions:
        if args.dry_run:
            count = _count_events(source, session)
            write(f"{session}: {count_with_noun(count, 'event')}\n")
        else:
            count = _move(source, target, session)
            write(f"{session}: {count_with_noun(count, 'event')} moved\n")
    return 0


def _count_events(index: SessionIndex, session: str) -> int:
    """Return the number of events of a session and all its subagents."""
    children = (f"{session}/{name}" for name in index.children(session))
    return len(index.history(session).entries) + sum(
        _count_events(index, child) for child in children
    )


def _move(index: SessionIndex, target: SessionIndex, session: str) -> int:
    """Copy a session to `target`, check the copy, and delete the source.

    Return the number of events. Raises `Held` or `JournalError`, and deletes nothing, if
    another process writes the session, or if a journal is damaged.
    """
    if writer := index.writer(session):
        raise Held(f"the session {session} is open in {writer.text}: leave it there first")
    count = anyio.run(_copy_locked, index, target, session)
    damages = [*target.check(session).damages, *index.check(session).damages]
    if damages:
        raise JournalError(f"nothing was deleted: {damages[0]}")
    # the lock was released, so another process may have written
    if anyio.run(copy_session, index, target, session) != count:
        raise Held(f"the session {session} was written meanwhile: move it again")
    index.delete(session)
    return count


async def _copy_locked(index: SessionIndex, target: SessionIndex, session: str) -> int:
    """Copy a session while it is locked against other writers. Return the number of events."""
    store = index.store(session)
    await store.lease()
    try:
        return await copy_session(index, target, session)
    finally:
        await store.release()
