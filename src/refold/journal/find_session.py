"""Finds the session that a user's text means. Every adapter of `session_index` uses this
module.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from refold.errors import BadInput
from refold.journal.events.kinds import LAST_SESSION
from refold.journal.session_index import CardCatalogue, Progress, StoredSession
from refold.journal.state.children import CHILD_PATTERN

_MAX_SIMILAR = 10_000  # newest sessions that are compared with an unknown id


class Sessions(Protocol):
    """The methods of a `SessionIndex` that this module needs."""

    def look_up(self, session: str) -> StoredSession | None:
        """Return the session with this id; None if it has no journal."""
        ...

    def sessions(self) -> Iterator[StoredSession]:
        """Yield all sessions without subagents, the last written first."""
        ...

    def newest_of(self, directory: Path) -> StoredSession | None:
        """Return the session of `directory` that was written last; None if there is none."""
        ...

    def catalogue(self, tell: Progress) -> CardCatalogue:
        """Return the catalogue. `tell` is called with the progress of indexing."""
        ...


def find(sessions: Sessions, text: str, tell: Progress) -> StoredSession:
    """Implements `SessionIndex.find`."""
    root, *names = text.split("/")
    if root and names and re.fullmatch(CHILD_PATTERN, names[0]):
        return _find_subagent(sessions, find(sessions, root, tell), names)
    if not text:
        raise BadInput("an empty text names no session: give an id or its beginning")
    may_be_id = "/" not in text and text[0] != "."
    if may_be_id and (exact := sessions.look_up(text)):
        return exact
    card = sessions.catalogue(tell).match(text)
    session = sessions.look_up(card.id) if card else None
    if session is None:
        ids = [stored.id for stored in islice(sessions.sessions(), _MAX_SIMILAR)]
        raise BadInput(_unknown_session_text(text, ids))
    return session


def resolve(
    sessions: Sessions, text: str, directory: Path, tell: Progress
) -> StoredSession:
    """Implements `SessionIndex.resolve`."""
    first, *names = text.split("/")
    if first != LAST_SESSION:
        return find(sessions, text, tell)
    if (session := sessions.newest_of(directory)) is None:
        raise BadInput(
            f"no session was started in {directory} yet: name one (refold sessions "
            "list --all)"
        )
    return _find_subagent(sessions, session, names)


def _find_subagent(
    sessions: Sessions, session: StoredSession, names: list[str]
) -> StoredSession:
    """Return the subagent to which `names` lead. Raises `BadInput` if there is none."""
    for name in names:
        is_name = re.fullmatch(CHILD_PATTERN, name)
        child = sessions.look_up(f"{session.id}/{name}") if is_name else None
        if child is None:
            raise BadInput(
                f"the session {session.id} has no subagent {name!r} (`refold tree "
                f"{session.id}` shows all)"
            )
        session = child
    return session


def _unknown_session_text(text: str, ids: Sequence[str]) -> str:
    from refold.values.similar_names import similar  # imported late, only for this error

    suggestions = similar(text, sorted(ids, reverse=True), 1)
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    return f"there is no session {text!r}{hint} (`refold sessions list` shows all)"
