"""A session's journal, read without its pen: for doors that only show or judge it."""

from collections.abc import Iterator

from refold.errors import Corrupt
from refold.journal import codec, lines
from refold.journal.events import Entry
from refold.journal.fold import View, fold
from refold.journal.home import Session
from refold.journal.reader import Reader


def folded(session: Session) -> tuple[View, str]:
    """What it knows, and what is wrong with its journal, if anything."""
    found, damage = entries(session)
    return fold(found), damage


def entries(session: Session) -> tuple[list[Entry], str]:
    """The good entries from the start, and what is wrong with the next, if anything."""
    found: list[Entry] = []
    try:
        found.extend(_decoded(session))
    except Corrupt as error:
        return found, f"{session.path / lines.NAME}: {error}"
    return found, ""


def _decoded(session: Session) -> Iterator[Entry]:
    whole = Reader(session.path / lines.NAME).read(0)
    for entry, _ in codec.decode(whole):
        yield entry
