"""What all sessions of one tree share while they run: files that are changed, and births.

Nothing of it is recorded. After a restart nobody is in the middle of a change, and of
who made an older one, or was born, the journals tell.
"""

import anyio


class Shared:
    """One for a session and all below it."""

    def __init__(self) -> None:
        self._locks = dict[str, anyio.Lock]()
        self._written = dict[str, tuple[str, str]]()
        self._turn, self._born = 0, dict[str, int]()

    def lock(self, file: str) -> anyio.Lock:
        """Whoever changes this file (a real path) holds it meanwhile."""
        return self._locks.setdefault(file, anyio.Lock())

    def wrote(self, file: str, sha256: str, who: str) -> None:
        """`file` is a real path as it is printed, `who` an address, `sha256` of what is there.

        One with letters that cannot be printed is not found again: nobody is named then.
        """
        self._written[file] = (sha256, who)

    def turn_of_root(self, seq: int) -> None:
        """Births are counted within one turn of the root of the tree."""
        if seq != self._turn:
            self._turn = seq
            self._born.clear()

    def born(self, parent: str, count: int) -> None:
        """`parent`, an address, has so many children by now. Told before each is recorded."""
        self._born[parent] = count

    def born_elsewhere(self, parent: str) -> int:
        """The children of all others in the tree, in this turn of its root."""
        return sum(count for who, count in self._born.items() if who != parent)

    def other(self, file: str, known: str, me: str) -> str:
        """Who else in this tree wrote the file last, if `me` knows it otherwise; or ""."""
        sha256, who = self._written.get(file, (known, me))
        return who if who != me and sha256 != known else ""
