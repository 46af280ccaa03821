"""A person picks a session: a list that typing narrows, or numbers where nothing moves.

What is shown, and what keys do to it, is `views.picking`; here it is drawn and keys are
read. Which sessions there are, and what happens to the one that is picked, is the business
of those who ask.
"""

import time
from collections.abc import Callable, Sequence

import anyio

from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.reading import Key, TerminalReader
from refold.journal.catalogue.card import Card
from refold.views.escape import on_one_line
from refold.views.picking import Picking, heard, numbered
from refold.views.styled import line

MOST = 20  # in a list of numbers
Search = Callable[[str], frozenset[str]]  # the ids of sessions where that was said
_HOW = "a number, or words to look for; Enter to leave: "


async def pick(
    paper: Paper, reading: TerminalReader, cards: Sequence[Card], search: Search
) -> str:
    """The id of the session that was picked; "": none, the person has left.

    `cards` are the newest first. `search` may take its time: it is called in a thread.
    """
    if not reading.lively:
        return await _by_number(paper, reading, cards, search)
    from refold.cli.terminal.keyboard.line_editor.picking import picked

    paper.fresh()
    return await picked(paper, tuple(cards), search)


async def _by_number(
    paper: Paper, reading: TerminalReader, cards: Sequence[Card], search: Search
) -> str:
    shown = cards[:MOST]
    while True:
        for row in numbered(shown, paper.room, time.time()):
            paper.line(row)
        found = await reading.brief(line(_HOW, "strong"))
        if isinstance(found, Key) or not found.strip():
            return ""
        words = found.strip()
        if words.isascii() and words.isdecimal() and 1 <= int(words) <= len(shown):
            return shown[int(words) - 1].id
        fits = await _fitting(cards, words, search)
        if len(fits) == 1:
            return fits[0].id
        if not fits:
            paper.say(f"Nothing fits {on_one_line(words)!r}.", "dim")
        shown = fits[:MOST] or shown


async def _fitting(cards: Sequence[Card], words: str, search: Search) -> Sequence[Card]:
    ids = await anyio.to_thread.run_sync(search, words)
    return heard(Picking(tuple(cards), words), words, ids).shown
