"""What all sessions of one tree share while they run: whose turn it is to change a file.

Nothing of it is recorded. After a restart nobody is in the middle of a change, and of
who made an older one the journals tell.
"""

import anyio


class Shared:
    """One for a session and all below it."""

    def __init__(self) -> None:
        self._locks = dict[str, anyio.Lock]()
        self._written = dict[str, tuple[str, str]]()

    def lock(self, file: str) -> anyio.Lock:
        """Whoever changes this file (a real path) holds it meanwhile."""
        return self._locks.setdefault(file, anyio.Lock())

    def wrote(self, file: str, sha256: str, who: str) -> None:
        """`file` is a real path as it is printed, `who` an address, `sha256` of what is there.

        One with letters that cannot be printed is not found again: nobody is named then.
        """
        self._written[file] = (sha256, who)

    def other(self, file: str, known: str, me: str) -> str:
        """Who else in this tree wrote the file last, if `me` knows it otherwise; or ""."""
        sha256, who = self._written.get(file, (known, me))
        return who if who != me and sha256 != known else ""
