"""The sessions of a directory: listed, named and searched.

`journal.catalogue` has what is known of all sessions; the handle opens one.
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

__all__ = ["LAST_SESSION", "SessionCatalogue", "sessions_of"]  # LAST: the newest session

_READ_SECONDS = 2.0  # for reading new entries; a list does not wait for all
_MAX_LISTED = 1_000  # newest sessions of a directory; others are found by id, name or text
_MAX_TYPED_HITS = 200  # hits of a search while it is typed


class SessionCatalogue:
    """The sessions of one directory. `current` is the current session, which is not listed."""

    def __init__(
        self, index: SessionIndex, directory: Path | str, current: str = ""
    ) -> None:
        self._home, self._directory, self._current = index, directory, current

    async def sessions(self) -> Sequence[Card]:
        """The other sessions of this directory that have messages, newest first."""
        catalogue = self._home.catalogue()
        cards = await anyio.to_thread.run_sync(sessions_of, catalogue, self._directory)
        return [card for card in cards if card.id != self._current]

    def names(self) -> Sequence[tuple[str, str, str]]:
        """Id, name and title of each session, for completion. Reads the disk."""
        cards = sessions_of(self._home.catalogue(), self._directory)
        return [(card.id, card.about.name, card.about.title) for card in cards]

    async def find(self, text: str) -> str:
        """The id of the session with this id, beginning of an id, or name.

        Raises `BadInput` if there is none, or more than one.
        """
        match = await anyio.to_thread.run_sync(self._home.find, text)
        return match.id

    async def search(self, text: str, limit: int) -> Sequence[Hit]:
        """Search the messages of this directory's sessions."""

        def search_cards() -> Sequence[Hit]:
            catalogue = self._home.catalogue()
            return catalogue.search(text, limit, works_in(self._directory))

        return await anyio.to_thread.run_sync(search_cards)

    def search_while_typing(self, text: str) -> frozenset[str]:
        """The ids of the sessions whose messages contain this text, which may be incomplete."""
        query = text if text.endswith(('"', "*")) else f"{text}*"
        works_here = works_in(self._directory)

        def is_other(card: Card) -> bool:
            return card.id != self._current and works_here(card)

        try:
            hits = self._home.catalogue().search(
                query, _MAX_TYPED_HITS, is_other, seconds=0.0
            )
        except BadInput:  # punctuation alone: a title may contain it
            return frozenset()
        return frozenset(hit.card.id for hit in hits)


def sessions_of(catalogue: CardCatalogue, directory: Path | str) -> list[Card]:
    """The newest sessions of a directory that have messages, the last written first.

    Of the runs of a schedule, only the newest is listed.
    """
    wanted = CardFilter(str(directory))
    cards = catalogue.newest_first(wanted, seconds=_READ_SECONDS)
    return list(islice((card for card in cards if card.about.title), _MAX_LISTED))
