"""Lists, names and searches the sessions of a directory.

`journal.catalogue` indexes all sessions; `client.session` is the handle that opens one.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import anyio

from refold.errors import BadInput
from refold.journal.catalogue.card_filter import CardFilter
from refold.journal.catalogue.session_card import Card, Hit, works_in
from refold.journal.events.kinds import LAST_SESSION
from refold.journal.session_index import CardCatalogue, SessionIndex

# LAST_SESSION is the name that stands for the newest session.
__all__ = ["LAST_SESSION", "SessionCatalogue", "sessions_of"]

_READ_SECONDS = 2.0  # new entries are read for so long; later ones are not listed
# Newest sessions of a directory; older ones are found by id, name or text.
_MAX_LISTED = 1_000
_MAX_TYPED_HITS = 200  # search hits while the user types


class SessionCatalogue:
    """The stored sessions of one directory.

    Lists leave out the session with the id `current`.
    """

    def __init__(
        self, index: SessionIndex, directory: Path | str, current: str = ""
    ) -> None:
        self._index = index
        self._directory = directory
        self._current = current

    async def sessions(self) -> Sequence[Card]:
        """Return the sessions of this directory that have messages, newest first, without
        the current one.
        """
        catalogue = self._index.catalogue()
        cards = await anyio.to_thread.run_sync(sessions_of, catalogue, self._directory)
        return [card for card in cards if card.id != self._current]

    def names(self) -> Sequence[tuple[str, str, str]]:
        """Return the id, name and title of each session, for completion. Reads the disk."""
        cards = sessions_of(self._index.catalogue(), self._directory)
        return [(card.id, card.about.name, card.about.title) for card in cards]

    async def find(self, text: str) -> str:
        """Return the full id of the session that `text` names: by its id, an id's
        beginning, or its name.

        Raises `BadInput` if none matches, or more than one.
        """
        match = await anyio.to_thread.run_sync(self._index.find, text)
        return match.id

    async def search(self, text: str, limit: int) -> Sequence[Hit]:
        """Return at most `limit` messages of this directory's sessions that match `text`."""

        def search_cards() -> Sequence[Hit]:
            catalogue = self._index.catalogue()
            return catalogue.search(text, limit, works_in(self._directory))

        return await anyio.to_thread.run_sync(search_cards)

    def search_while_typing(self, text: str) -> frozenset[str]:
        """Return the ids of the sessions whose messages contain this text.

        The last word of the text may be incomplete.
        """
        # `*` finds all words with this beginning; a closing quote ends a phrase.
        query = text if text.endswith(('"', "*")) else f"{text}*"
        works_here = works_in(self._directory)

        def is_other(card: Card) -> bool:
            return card.id != self._current and works_here(card)

        try:
            hits = self._index.catalogue().search(
                query, _MAX_TYPED_HITS, is_other, seconds=0.0
            )
        except BadInput:  # only punctuation, which a title may contain
            return frozenset()
        return frozenset(hit.card.id for hit in hits)


def sessions_of(catalogue: CardCatalogue, directory: Path | str) -> list[Card]:
    """Return the sessions of a directory that have messages, the last written first.

    There is a limit to their number. Of the runs of a schedule, only the newest is listed.
    """
    cards = catalogue.newest_first(CardFilter(str(directory)), seconds=_READ_SECONDS)
    # The first message sets the title.
    with_messages = (card for card in cards if card.about.title)
    return list(islice(with_messages, _MAX_LISTED))
