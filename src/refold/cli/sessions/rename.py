"""`refold sessions rename ID NAME` and `tag ID +x -y`: names and tags of a session.

Both write to the journal and need its lock, so a session that is open elsewhere must be
renamed there.
"""

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from refold.cli.session_argument import load_view, stored_session
from refold.errors import BadInput
from refold.headless.streams import print_note, write
from refold.journal.home import JournalDirectory, StoredSession
from refold.journal.state.session_info import SessionInfo
from refold.journal.store import log_file
from refold.session.recorder import Recorder
from refold.session.rename import rename, tag
from refold.views.escape import on_one_line

_SOON = 1.0  # seconds for the catalogue; whoever lists next does the rest
Change = Callable[[Recorder], Awaitable[bool]]


def run(home: JournalDirectory, found: Namespace) -> int:
    session = stored_session(home, found.id)
    if "/" in session.id:
        root = session.id.partition("/")[0]
        raise BadInput(
            f"{session.id} is a subagent and cannot be named or tagged: name its parent, {root}"
        )
    if found.what == "rename":
        _rename(home, session, found.name)
    else:
        _tag(home, session, found.tags)
    return 0


def _rename(home: JournalDirectory, session: StoredSession, name: str) -> None:
    about = _changed(home, session, lambda record: rename(record, name))
    if about.name:
        write(f"{session.id} is called {on_one_line(about.name)!r}\n")
    else:
        write(f"{session.id} has no name\n")


def _tag(home: JournalDirectory, session: StoredSession, changes: list[str]) -> None:
    if changes:
        about = _changed(home, session, lambda record: tag(record, changes))
    else:
        about = load_view(session)[0].session
    if about.tags:
        write("".join(f"{on_one_line(each)}\n" for each in about.tags))
    else:
        print_note(f"{session.id} has no tags")


def _changed(home: JournalDirectory, session: StoredSession, change: Change) -> SessionInfo:
    """Write it, and leave the session in its place among the others: nothing was said."""
    file = session.path / log_file.NAME
    before = file.stat()
    about = anyio.run(partial(_write, home, session.id, change))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    home.catalogue().freshen(_SOON)
    return about


async def _write(home: JournalDirectory, id_: str, change: Change) -> SessionInfo:
    record = Recorder(home.store(id_))
    try:
        await record.open()
        await change(record)
        return record.view.session
    finally:
        await record.close()
