"""What there is to be carried of one journal: how far it is good, what it names.

Reads the lines once and holds none of them, while somebody may be writing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from refold.errors import Corrupt
from refold.journal import codec, lines, pen
from refold.journal.below import ChildBorn
from refold.journal.bundle.following import follow
from refold.journal.events import Imported
from refold.journal.family import CHILD
from refold.journal.named import NAMING, blobs_of
from refold.journal.tree_files import is_written


class Survey(Struct, frozen=True):
    """`events` good lines in the first `size` bytes. `damage` says what is wrong after them.

    What an import has added at the end is none of them, if nothing has happened since:
    then `source` is the id that the session had before.
    """

    events: int
    size: int
    children: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()  # in the order in which they are first named
    damage: str = ""
    source: str = ""


def survey(path: Path) -> Survey:
    """Look at the journal in this directory. Raises `OSError` where there is none."""
    file = path / lines.NAME
    # Before the lines: half a line may still be in writing, and more may be written.
    written, note = is_written(path), pen.read(path)
    walk, damage = _Walk(), ""
    size = file.stat().st_size
    try:
        for good in follow(walk.whole(file, size)):
            walk.see(good.line, good.says.kind)
    except Corrupt as error:
        damage = f"{file}: {error}"
    if walk.torn and not damage and not written:
        damage = f"{file}: its last line has no end, and is left out"
    if note.head[0] > walk.events and not damage:
        left = f"its writer left it at event {note.head[0]}"
        damage = f"{file}: it ends at event {walk.events}, but {left}"
    return walk.found(damage)


def good_lines(file: Path, size: int) -> Iterator[bytes]:
    """The lines in the first `size` bytes of a file, one by one."""
    with file.open("rb") as opened:
        left = size
        while left > 0 and (line := opened.readline(left)):
            left -= len(line)
            yield line


class _Walk:
    def __init__(self) -> None:
        self.torn = False
        self.events = self._size = 0
        self._children = dict[str, None]()
        self._blobs = dict[str, None]()
        self._last: tuple[int, Imported] | None = None  # the size before it

    def whole(self, file: Path, size: int) -> Iterator[bytes]:
        for line in good_lines(file, size):
            self.torn = not line.endswith(b"\n")
            if not self.torn:
                yield line[:-1]

    def see(self, line: bytes, kind: str) -> None:
        self._last = None
        if kind in NAMING or kind in ("ChildBorn", "Imported"):
            self._look_into(line)
        self.events += 1
        self._size += len(line) + 1

    def found(self, damage: str) -> Survey:
        events, size, source = self.events, self._size, ""
        if self._last and not damage:
            events, size, source = events - 1, self._last[0], self._last[1].source
        names = (tuple(self._children), tuple(self._blobs))
        return Survey(events, size, *names, damage, source)

    def _look_into(self, line: bytes) -> None:
        event = codec.unchecked(line)
        match event:
            case ChildBorn(child) if CHILD.fullmatch(child):
                self._children[child] = None
            case Imported():
                self._last = (self._size, event)
            case None:
                pass
            case _:
                self._blobs |= dict.fromkeys(blobs_of(event))


def lies_in(path: Path) -> bool:
    """Is there a journal?"""
    return os.path.isfile(path / lines.NAME)
