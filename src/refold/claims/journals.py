"""The journals that a session's claims are held against: its own, and its children's.

Read as they lie on the disk, without a pen, while somebody may be writing. Only children
that a journal tells of are looked for.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from refold.claims.observed import Record
from refold.errors import JournalError
from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.events.kinds import Entry
from refold.journal.home import CHILDREN
from refold.journal.store.blobs import Blobs
from refold.journal.store.disk import Disk
from refold.journal.store.tree_reader import entries_in

_NAME = re.compile(r"child-\d{1,6}")
_DEEPEST = 16
_MOST = 1_000  # sessions


def records(path: Path, entries: Sequence[Entry], name: str = "") -> list[Record]:
    """Of the session at `path` with these entries, and of all below it."""
    found = [Record(entries, name, _blobs(path))]
    left = list(_born(path, entries, name))
    while left and len(found) < _MOST:
        below, child, known = left.pop(0)
        if not below.is_dir():  # of a fork they lie elsewhere
            continue
        told, damage = entries_in(below, known)
        found.append(Record(told, child, _blobs(below), damage))
        if child.count("/") < _DEEPEST:
            left += _born(below, told, child)
    return found


def _born(
    path: Path, entries: Sequence[Entry], name: str
) -> list[tuple[Path, str, tuple[int, str]]]:
    """Where each child lies, its name, and how its journal ended, if it has."""
    ends = {e.event.child: e.event.head for e in entries if isinstance(e.event, ChildEnded)}
    children = [e.event.child for e in entries if isinstance(e.event, ChildBorn)]
    return [
        (
            path / CHILDREN / child,
            f"{name}/{child}" if name else child,
            ends.get(child, (0, "")),
        )
        for child in dict.fromkeys(children)
        if _NAME.fullmatch(child)
    ]


def _blobs(path: Path) -> Callable[[str], bytes | None]:
    blobs = Blobs(path, Disk())

    def get(name: str) -> bytes | None:
        try:
            return blobs.get(name)
        except JournalError:
            return None

    return get
