"""/export: write this session to a file.

The events are read from the journal on the disk.
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from anyio.from_thread import check_cancelled

from refold.cli.sessions.export import FORMS, SUFFIXES, form_by_name
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal.home import Home, StoredSession
from refold.journal.state.session_info import SessionInfo
from refold.journal.store import log_file
from refold.terminal.terminal import Terminal
from refold.views.number_format import in_bytes


async def run(here: Terminal, rest: str) -> None:
    """`/export [md|html|tar|text] [FILE]`."""
    first, _, more = rest.strip().partition(" ")
    form, name = (first, more.strip()) if first in FORMS else ("", rest.strip())
    if not form and name.isalnum():
        raise BadInput(
            f"{name!r} is none of {', '.join(FORMS)}; for a file of that name, type ./{name}"
        )
    work = partial(_written, here.session.view.session, form or form_by_name(name), name)
    if (done := await here.job.do(work)) is not None:
        here.printer.say(done, "dim")


def _written(about: SessionInfo, form: str, name: str) -> str:
    """Write the file; a sentence about it comes back.

    An older file of the default name is overwritten.
    """
    from refold.cli.sessions.export_formats import Wanted, exported
    from refold.cli.sessions.save_file import save

    place = Home(paths(os.environ).data / "sessions").path(about.id)
    if not about.id or not (place / log_file.NAME).is_file():
        raise BadInput("No journal is kept here, so there is nothing to export.")
    file = Path(name or f"refold-{about.id}{SUFFIXES[form]}").expanduser()
    path = Path(about.directory) / file
    made = exported(StoredSession(about.id, place, 0.0), Wanted(form))
    size = save(path, _until_stopped(made.pieces), force=not name)
    lacking = "".join(f"\nleft out: {damage}" for damage in made.damages)
    return f"{path}: {made.told}, {in_bytes(size)}{lacking}"


def _until_stopped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        check_cancelled()
        yield piece
    check_cancelled()
