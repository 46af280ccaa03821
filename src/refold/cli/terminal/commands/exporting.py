"""/export: this session as a file in the directory where it works, or where one says.

What the file holds is the business of `cli.exported`; the events are read from the disk,
where all that was shown by now stands.
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from anyio.from_thread import check_cancelled

from refold.cli.sessions.export import FORMS, SUFFIXES, form_by_name
from refold.cli.terminal.conversing import Conversation
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal import lines
from refold.journal.about import About
from refold.journal.home import Home, StoredSession
from refold.views.counts import in_bytes


async def export(here: Conversation, rest: str) -> None:
    """`/export [md|html|tar|text] [FILE]`."""
    first, _, more = rest.strip().partition(" ")
    form, name = (first, more.strip()) if first in FORMS else ("", rest.strip())
    if not form and name.isalnum():
        raise BadInput(
            f"{name!r} is none of {', '.join(FORMS)}; a file of that name is ./{name}"
        )
    work = partial(_written, here.session.view.about, form or form_by_name(name), name)
    if (said := await here.apart.do(work)) is not None:
        here.paper.say(said, "dim")


def _written(about: About, form: str, name: str) -> str:
    """Where it was written to, and how much.

    A file that has a name of ours is written over: it is of this session, and older.
    """
    from refold.cli.sessions.exported import Wanted, exported
    from refold.cli.sessions.saving import save

    place = Home(paths(os.environ).data / "sessions").path(about.id)
    if not about.id or not (place / lines.NAME).is_file():
        raise BadInput("This session is kept nowhere, so there is nothing to export.")
    file = Path(name or f"refold-{about.id}{SUFFIXES[form]}").expanduser()
    path = Path(about.directory) / file
    made = exported(StoredSession(about.id, place, 0.0), Wanted(form))
    size = save(path, _until_stopped(made.pieces), force=not name)
    lacking = "".join(f"\nleft out of it: {damage}" for damage in made.damages)
    return f"{path}: {made.told}, {in_bytes(size)}{lacking}"


def _until_stopped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        check_cancelled()
        yield piece
    check_cancelled()
