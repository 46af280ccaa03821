"""The variables of other sessions, as their journals have them. Read, never written."""

from collections.abc import Sequence

import anyio

from refold.errors import BadInput, JournalError
from refold.journal import codec
from refold.journal.events import TurnEnded
from refold.journal.fold import View, fold
from refold.journal.home import Home
from refold.rlm.port import Found


class OtherSessions:
    """`own` is the id of the session that looks; "child-2" is one below it.

    What was worked out elsewhere is none of its business: only sessions of its tree are
    there, and those that work in the same `directory`.
    """

    def __init__(self, home: Home, own: str, directory: str) -> None:
        self._home, self._own, self._directory = home, own, directory

    async def of(self, named: str) -> Found:
        """Those of ID, or of ID@TURN. Raises `BadInput`."""
        name, _, turn = named.partition("@")
        if name.startswith("child-"):
            name = f"{self._own}/{name}"
        found = await anyio.to_thread.run_sync(self._home.find, name)
        store = self._home.store(found.id)
        try:
            lines = await store.read()
            view = await anyio.to_thread.run_sync(_view, lines, turn, found.id)
            self._check_near(found.id, view)
            talk = view.talk
            index = await store.get(talk.variables)
            return Found(found.id, index, talk.parts, store.get)
        except JournalError as error:
            raise BadInput(f"the session {found.id} cannot be read: {error}") from error

    def _check_near(self, id_: str, view: View) -> None:
        """Raises `BadInput` for the session of another place."""
        same_tree = id_.partition("/")[0] == self._own.partition("/")[0]
        if not same_tree and view.about.directory != self._directory:
            raise BadInput(
                f"the session {id_} works in another directory, so its variables are not "
                "for this one"
            )


def _view(lines: Sequence[bytes], turn: str, name: str) -> View:
    """With whose variables one begins."""
    entries = [entry for entry, _ in codec.decode(lines)]
    if turn:
        ends = [n for n, e in enumerate(entries) if isinstance(e.event, TurnEnded)]
        if not turn.isdecimal() or not 0 < int(turn) <= len(ends):
            raise BadInput(f"{name} has {len(ends)} turns that ended, and no turn {turn}")
        entries = entries[: ends[int(turn) - 1] + 1]
    view = fold(entries)
    if not view.talk.variables:
        when = f" after its turn {turn}" if turn else ""
        raise BadInput(f"{name} has no variables of Python{when}")
    return view
