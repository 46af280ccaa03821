"""`refold sessions rename ID NAME` and `tag ID +x -y`: names and tags of a session.

Both write to the journal and need its lock, so a session that is open elsewhere must be
renamed there.
"""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from refold.cli.session_argument import load_view, stored_session
from refold.errors import BadInput
from refold.headless.streams import print_note, write
from refold.journal.session_index import SessionIndex
from refold.journal.state.session_info import SessionInfo
from refold.session.recorder import Recorder
from refold.session.rename import rename, tag
from refold.views.escape import on_one_line

_SOON = 1.0  # seconds for the catalogue; whoever lists next does the rest
Change = Callable[[Recorder], Awaitable[bool]]


def run(home: SessionIndex, found: Namespace) -> int:
    session = stored_session(home, found.id)
    if "/" in session:
        root = session.partition("/")[0]
        raise BadInput(
            f"{session} is a subagent and cannot be named or tagged: name its parent, {root}"
        )
    if found.what == "rename":
        _rename(home, session, found.name)
    else:
        _tag(home, session, found.tags)
    return 0


def _rename(home: SessionIndex, session: str, name: str) -> None:
    about = _changed(home, session, lambda record: rename(record, name))
    if about.name:
        write(f"{session} is called {on_one_line(about.name)!r}\n")
    else:
        write(f"{session} has no name\n")


def _tag(home: SessionIndex, session: str, changes: list[str]) -> None:
    if changes:
        about = _changed(home, session, lambda record: tag(record, changes))
    else:
        about = load_view(home, session)[0].session
    if about.tags:
        write("".join(f"{on_one_line(each)}\n" for each in about.tags))
    else:
        print_note(f"{session} has no tags")


def _changed(home: SessionIndex, session: str, change: Change) -> SessionInfo:
    """Write it, and leave the session in its place among the others: nothing was said."""
    set_back = home.remember_time(session)
    about = anyio.run(partial(_write, home, session, change))
    set_back()
    home.catalogue().freshen(_SOON)
    return about


async def _write(home: SessionIndex, id_: str, change: Change) -> SessionInfo:
    record = Recorder(home.store(id_))
    try:
        await record.open()
        await change(record)
        return record.view.session
    finally:
        await record.close()
