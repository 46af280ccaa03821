"""`-r` without a name: a person picks a session of this directory; nobody else guesses.

`pick_one` is for the command line, before a session is open, and `nobody_picks` where no
person is there; inside of a session, `choose` is the first with its screen. How it is
drawn is `terminal.picking`'s business.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import anyio

from refold.cli.sessions.catalogue_notice import Waiting
from refold.config.paths import here, paths
from refold.config.settings import Terminal as TerminalSettings
from refold.errors import BadInput
from refold.headless.streams import complain
from refold.journal.catalogue.catalogue import Catalogue
from refold.journal.catalogue.session_card import Card, called, works_in
from refold.journal.home import Home
from refold.terminal.input.reader import TerminalReader
from refold.terminal.prompts.session_picker import pick
from refold.terminal.screen.printer import Printer

_NAMED = 5
_MOST = 200  # sessions among whose words is searched
_SOON = 2.0  # seconds for reading what is new; a picker does not wait for thousands


def pick_one(terminal: TerminalSettings) -> str:
    """The id of a session, picked on a terminal with these settings; "": the person left."""
    home, cards = _of_here()
    from refold.terminal.this_terminal import this_terminal

    paper, reading = this_terminal(display=terminal.display, theme=terminal.theme)
    return anyio.run(_choose, paper, reading, home, cards)


def nobody_picks() -> BadInput:
    """What is told where there is no terminal: which sessions there are."""
    _, cards = _of_here()
    few = "\n".join(f"  {called(card)}" for card in cards[:_NAMED])
    return BadInput(f"-r needs to know which session; the newest here are\n{few}")


async def choose(
    paper: Printer, reading: TerminalReader, home: Home, directory: Path, but: str = ""
) -> str:
    """Have one of a directory's sessions picked, any `but` that one; "": none."""
    cards = await anyio.to_thread.run_sync(sessions_of, home.catalogue(), directory)
    others = [card for card in cards if card.id != but]
    if not others:
        raise BadInput(f"there is no other session of {directory}")
    return await _choose(paper, reading, home, others)


def sessions_of(catalogue: Catalogue, directory: Path | str) -> list[Card]:
    """Those of a directory in which something was said, the newest first."""
    works_here = works_in(directory)
    cards = catalogue.cards(seconds=_SOON)
    return [card for card in cards if works_here(card) and card.about.title]


def offered(home: Home, directory: str) -> Sequence[tuple[str, str, str]]:
    """The same as ids, names and titles: what can be completed."""
    found = sessions_of(home.catalogue(), directory)
    return [(card.id, card.about.name, card.about.title) for card in found]


def _of_here() -> tuple[Home, Sequence[Card]]:
    """Those of this directory. Raises `BadInput` where there is none."""
    home = Home(paths(os.environ).data / "sessions")
    if cards := sessions_of(home.catalogue(Waiting(), complain), here()):
        return home, cards
    raise BadInput(
        f"no session was started in {here()} yet: name one with -r ID (refold sessions "
        "list --all)"
    )


async def _choose(
    paper: Printer, reading: TerminalReader, home: Home, cards: Sequence[Card]
) -> str:
    ids = {card.id for card in cards}

    def search(text: str) -> frozenset[str]:
        begun = text if text.endswith(('"', "*")) else f"{text}*"  # it is still being typed
        try:
            hits = home.catalogue().search(
                begun, _MOST, lambda card: card.id in ids, seconds=0.0
            )
        except BadInput:  # signs alone: they may stand in a title
            return frozenset()
        return frozenset(hit.card.id for hit in hits)

    return await pick(paper, reading, cards, search)
