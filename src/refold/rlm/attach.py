"""The variables of other sessions, as their journals have them. Read, never written."""

from collections.abc import Sequence

import anyio

from refold.errors import BadInput, JournalError
from refold.journal import codec
from refold.journal.events import TurnEnded
from refold.journal.fold import fold
from refold.journal.home import Home


class OtherSessions:
    """`own` is the id of the session that looks; "child-2" is one below it."""

    def __init__(self, home: Home, own: str) -> None:
        self._home, self._own = home, own

    async def of(self, named: str) -> tuple[bytes, str]:
        """The snapshot of ID, or of ID@TURN, and the id whole. Raises `BadInput`."""
        name, _, turn = named.partition("@")
        if name.startswith("child-"):
            name = f"{self._own}/{name}"
        found = await anyio.to_thread.run_sync(self._home.find, name)
        store = self._home.store(found.id)
        try:
            lines = await store.read()
            blob = await anyio.to_thread.run_sync(_variables, lines, turn, found.id)
            return await store.get(blob), found.id
        except JournalError as error:
            raise BadInput(f"the session {found.id} cannot be read: {error}") from error


def _variables(lines: Sequence[bytes], turn: str, name: str) -> str:
    entries = [entry for entry, _ in codec.decode(lines)]
    if turn:
        ends = [n for n, e in enumerate(entries) if isinstance(e.event, TurnEnded)]
        if not turn.isdecimal() or not 0 < int(turn) <= len(ends):
            raise BadInput(f"{name} has {len(ends)} turns that ended, and no turn {turn}")
        entries = entries[: ends[int(turn) - 1] + 1]
    blob = fold(entries).talk.variables
    if not blob:
        when = f" after its turn {turn}" if turn else ""
        raise BadInput(f"{name} has no variables of Python{when}")
    return blob
