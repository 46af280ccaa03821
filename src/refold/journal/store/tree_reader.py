"""A tree of sessions read from the disk, without a pen, while it may be written.

The children of a session lie below it: `children/child-1/events.jsonl`. A line that is
just being written is not there yet; a broken journal is read up to the break, and what
is wrong is told in its node. Nothing here goes outside the session's directory.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from refold.errors import Corrupt
from refold.journal.events import codec
from refold.journal.events.kinds import Entry
from refold.journal.home import CHILDREN
from refold.journal.state.children import CHILD, Child
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import ROOT, Node
from refold.journal.store import log_file, writer_lock
from refold.journal.store.reader import Reader

_LOOKS = 3


def tree(path: Path, session: str) -> Node:
    """The session in this directory, and all below it."""
    return _node(path, session, ROOT, None)


def entries_in(path: Path, known: tuple[int, str] = (0, "")) -> tuple[list[Entry], str]:
    """The good entries of a session from the start, and what is wrong with the next.

    `known` is an event that others know it by, with its hash.
    """
    found: list[Entry] = []
    file, seq = path / log_file.NAME, known[0]
    try:
        for entry, head in codec.decode(Reader(file).read(0)):
            if head.seq == seq and head.h != known[1]:
                return found, f"{file}: event {seq} is not the one that its parent knows"
            found.append(entry)
        if len(found) < seq:
            return found, f"{file}: it ends before event {seq}, which its parent knows"
    except Corrupt as error:
        return found, f"{file}: {error}"
    except OSError as error:
        return found, f"{file} cannot be read: {error.strerror}"
    if not found and not is_written(path):  # whoever begins one has not written yet
        return found, f"{file}: no event is left in it (refold sessions check says more)"
    return found, ""


def is_written(path: Path) -> bool:
    """Does a process that lives hold the pen of this session?"""
    with suppress(OSError):
        for _ in range(_LOOKS):
            note = writer_lock.read(path)
            if note.state != "damaged":  # it may just have been in writing
                return writer_lock.lives(note.writer)
    return False


def _node(path: Path, session: str, address: str, child: Child | None) -> Node:
    written = is_written(
        path
    )  # before the lines: who ends after this is seen to have ended
    found, damage = entries_in(path)
    view = fold(found)
    known = {each.name: each for each in view.children.children}
    below = tuple(
        _node(
            path / CHILDREN / name,
            f"{session}/{name}",
            f"{address}/{name}",
            known.get(name),
        )
        for name in _names(path, known)
    )
    return Node(address, session, path, found, view, child, damage, written, below)


def _names(path: Path, known: dict[str, Child]) -> list[str]:
    """Those that the journal tells of, and those that only lie there, by their numbers."""
    born = {name for name in known if CHILD.fullmatch(name)}
    return sorted(born | set(_lying(path)), key=lambda name: int(name.rpartition("-")[2]))


def _lying(path: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(path / CHILDREN) as found:
        for each in found:
            if CHILD.fullmatch(each.name) and each.is_dir(follow_symlinks=False):
                yield each.name
