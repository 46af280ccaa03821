"""A session in each form that it can be exported in, as bytes to be written.

A tar is made in `journal.bundle`, what people read in `views.export`; here they are given
what they need of this machine: blobs, the tools' names for calls, the local time.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from refold.cli.session_argument import labels
from refold.errors import BadInput, JournalError
from refold.journal.home import StoredSession
from refold.journal.state.session_tree import Node, walk
from refold.journal.store.blobs import Blobs
from refold.journal.store.disk import Disk, told
from refold.journal.store.tree_reader import tree
from refold.values.messages import Image
from refold.views.export.content import ExportOptions
from refold.views.number_format import many


class Exported(Struct, frozen=True):
    """`told` says how much there is, `damages` what is left out."""

    pieces: Iterable[bytes]
    told: str
    damages: Sequence[str]


class Wanted(Struct, frozen=True):
    form: str
    children: bool = True
    thoughts: bool = False


def exported(session: StoredSession, wanted: Wanted) -> Exported:
    """The session in the form that is wanted. Reads from the disk as pieces are taken."""
    if wanted.form == "tar":
        from refold.journal.bundle.pack import Packing

        with told("read", session.path):
            packing = Packing(session.path, session.id, children=wanted.children)
        pieces = _read(packing.pieces(), session)
        return Exported(pieces, _size(packing.sessions, packing.events), packing.damages)
    node = tree(session.path, session.id)
    if not node.entries:
        why = f": {node.damage}" if node.damage else ""
        raise BadInput(f"there is nothing good to export in {session.id}{why}")
    nodes = list(walk(node)) if wanted.children else [node]
    events = sum(len(each.entries) for each in nodes)
    damages = [each.damage for each in nodes if each.damage]
    pieces = (piece.encode(errors="replace") for piece in _written(node, wanted))
    return Exported(pieces, _size(len(nodes), events), damages)


def _read(pieces: Iterator[bytes], session: StoredSession) -> Iterator[bytes]:
    """What goes wrong with the session meanwhile is told of it, not of where it goes to."""
    while True:
        with told("read", session.path):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def _size(sessions: int, events: int) -> str:
    return f"{many(sessions, 'session')}, {many(events, 'event')}"


def _written(node: Node, wanted: Wanted) -> Iterator[str]:
    means = ExportOptions(
        label=labels(),
        picture=_picture,
        when=_when,
        thoughts=wanted.thoughts,
        children=wanted.children,
    )
    match wanted.form:
        case "html":
            from refold.views.export.html import page

            return page(node, means)
        case "text":
            from refold.views.export.text import plain

            return plain(node, means)
        case _:
            from refold.views.export.text import markdown

            return markdown(node, means)


def _picture(node: Node, image: Image) -> bytes | None:
    try:
        return Blobs(node.path, Disk()).get(image.blob)
    except JournalError:
        return None


def _when(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        return "?"
