"""Which session a person means by what they typed: an id, a name, or the beginning of one.

The exact id is `home`'s own business. What is tried after that, in this order: a name, the
beginning of an id, the beginning of a name. Several may fit, and then nobody guesses.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from refold.errors import BadInput
from refold.journal.catalogue.session_card import Card

_NAMED = 4  # of those that fit
_TITLE = 40


def meant(text: str, cards: Sequence[Card]) -> Card | None:
    """The one that fits; `cards` are the newest first. Raises `BadInput` if several do."""
    wanted = text.casefold()
    ways: tuple[tuple[str, Callable[[Card], bool]], ...] = (
        ("is the name", lambda card: card.about.name.casefold() == wanted),
        ("is the beginning", lambda card: card.id.startswith(text)),
        (
            "is the beginning of the name",
            lambda card: card.about.name.casefold().startswith(wanted),
        ),
    )
    for way, fits in ways:
        found = [card for card in cards if fits(card)]
        if len(found) == 1:
            return found[0]
        if found:
            few = "; ".join(map(called, found[:_NAMED]))
            raise BadInput(
                f"{text!r} {way} of {len(found)} sessions: {few}"
                f"{'; …' if len(found) > _NAMED else ''}. Give more of the id"
            )
    return None


def works_in(directory: Path | str) -> Callable[[Card], bool]:
    """Whether a session works there. Links are followed, once for each directory."""
    real, known = os.path.realpath(directory), dict[str, bool]()

    def works(card: Card) -> bool:
        where = card.about.directory
        if where not in known:
            known[where] = bool(where) and os.path.realpath(where) == real
        return known[where]

    return works


def called(card: Card) -> str:
    """A session in a few words, for a sentence."""
    words = card.about.name or card.about.title
    short = words if len(words) <= _TITLE else words[: _TITLE - 1] + "…"
    return f"{card.id} ({short!r})" if short else card.id
