"""What is new in a tree of sessions since one last looked. Looks only when told to.

A child is joined when its birth is told, and left when its end is. A journal that breaks
is told of once and followed no more; the others go on.
"""

from collections.abc import Iterator
from pathlib import Path

from refold.errors import Corrupt
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import ChildBorn, ChildEnded, Entry
from refold.journal.home import CHILDREN
from refold.journal.state.children import CHILD
from refold.journal.store import log_file
from refold.journal.store.reader import Reader


class TreeNews:
    """`damages` says which journals could not be followed on, and why."""

    def __init__(self, path: Path, address: str) -> None:
        self._followed = {address: _Followed(path)}
        self.damages = list[str]()

    def look(self) -> list[tuple[str, Entry]]:
        """New entries with the address of the node that each is of, in the order of time."""
        found = list[tuple[float, str, Entry]]()
        waiting = list(self._followed)
        while waiting:  # those that were born meanwhile come after their parents
            address = waiting.pop(0)
            for at, entry in self._new(address):
                found.append((at, address, entry))
                if born := self._born(address, entry):
                    waiting.append(born)
        for _, address, entry in found:
            if isinstance(entry.event, ChildEnded):
                self._leave(f"{address}/{entry.event.child}")
        return [(each, entry) for _, each, entry in sorted(found, key=lambda e: e[0])]

    def _new(self, address: str) -> Iterator[tuple[float, Entry]]:
        followed = self._followed[address]
        try:
            yield from followed.new()
        except (Corrupt, OSError) as error:
            self.damages.append(f"{followed.file}: {error}")
            del self._followed[address]

    def _born(self, address: str, entry: Entry) -> str:
        if not isinstance(entry.event, ChildBorn):
            return ""
        name, below = entry.event.child, f"{address}/{entry.event.child}"
        followed = self._followed.get(address)
        if not CHILD.fullmatch(name) or followed is None:
            return ""
        self._followed[below] = _Followed(followed.path / CHILDREN / name)
        return below

    def _leave(self, address: str) -> None:
        for each in list(self._followed):
            if each == address or each.startswith(f"{address}/"):
                del self._followed[each]


class _Followed:
    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path / log_file.NAME
        self._reader, self._head = Reader(self.file), Head()
        self._latest = 0.0

    def new(self) -> Iterator[tuple[float, Entry]]:
        """With a time that never goes back, whatever the writer's clock did."""
        for entry, head in codec.decode(self._reader.read(self._head.seq), self._head):
            self._head = head
            self._latest = max(self._latest, entry.at)
            yield self._latest, entry
