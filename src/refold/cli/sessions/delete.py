"""`refold sessions delete ID…`: deletes sessions for good, after the user has confirmed it.

First it says what will be deleted: the session, its subagents, and its snapshots of files.
Deleted sessions cannot be restored.
"""

import os
from argparse import Namespace

from refold.cli.catalogue_notice import WaitNotice
from refold.cli.output import is_interactive, said_yes
from refold.cli.session_argument import stored_session
from refold.client.deletion import DeletionPlan, deletions
from refold.config.paths import paths
from refold.errors import BadInput, Held
from refold.headless.streams import print_document, print_error, write
from refold.journal.session_index import SessionIndex
from refold.place.checkpoints import forget
from refold.views.number_format import in_bytes, many

_SOON = 1.0  # seconds for the catalogue; whoever lists next does the rest


def run(home: SessionIndex, found: Namespace) -> int:
    """Ask, and delete. 1: the user said no."""
    sessions = list(dict.fromkeys(stored_session(home, text) for text in found.ids))
    for id_ in sessions:
        _check(home, id_)
    store = paths(os.environ).data / "checkpoints"
    cards = home.catalogue(WaitNotice(), print_error).cards(children=True)
    going = deletions(home, store, sessions, cards)
    if not found.json:
        for each in going:
            write(f"{_line(each)}\n")
    if not found.yes and not _said_yes(len(going)):
        write("Nothing was deleted.\n")
        return 1
    gone = list[DeletionPlan]()
    try:
        for each in going:
            home.delete(each.session)
            gone.append(each)
            for place in each.snapshots:
                forget(place)
            if found.json:
                document = {"id": each.session, "bytes": each.bytes}
                print_document(document)
    finally:  # also where one of them cannot be deleted: the others are gone
        home.catalogue().freshen(_SOON)
        if gone and not found.json:
            freed = in_bytes(sum(each.bytes for each in gone))
            write(f"Deleted: {many(len(gone), 'session')}, {freed}.\n")
    return 0


def _check(home: SessionIndex, id_: str) -> None:
    if "/" in id_:
        raise BadInput(
            f"{id_} is a subagent and is deleted with its parent: delete "
            f"{id_.partition('/')[0]}"
        )
    if home.writer(id_):
        raise Held(f"the session {id_} is open in another process: leave it there first")


def _line(going: DeletionPlan) -> str:
    below = going.extent.sessions - 1
    children = f", with {below} below it" if below > 0 else ""
    snapshots = ", and its snapshots of files" if going.snapshots else ""
    return f"{going.session}  {in_bytes(going.bytes)}{children}{snapshots}  {going.name}"


def _said_yes(count: int) -> bool:
    if not is_interactive():
        raise BadInput(
            "there is no terminal to ask at: give --yes to delete without asking"
        )
    write(f"Delete {many(count, 'session')} for good? [y/N] ")
    return said_yes()
