"""A person picks a session: a list that typing narrows, or numbers where nothing moves.

What is shown, and what keys do to it, is `views.session_list`; here it is drawn and keys are
read. Which sessions there are, and what happens to the one that is picked, is the business
of those who ask.
"""

import time
from collections.abc import Sequence

import anyio

from refold.client.types import Card
from refold.terminal.input.reader import Key, TerminalReader
from refold.terminal.screen.printer import Printer
from refold.views.escape import on_one_line
from refold.views.session_list import Search, SessionPicker, numbered_rows, with_matches
from refold.views.styled import line

MOST = 20  # in a list of numbers
_HOW = "number, or words to search for; Enter to leave: "


async def pick(
    printer: Printer, reader: TerminalReader, cards: Sequence[Card], search: Search
) -> str:
    """The id of the session that was picked; "": none, the person has left.

    `cards` are the newest first. `search` may take its time: it is called in a thread.
    """
    if not reader.lively:
        return await _by_number(printer, reader, cards, search)
    from refold.terminal.input.line_editor.session_list import picked

    printer.fresh()
    return await picked(printer, tuple(cards), search)


async def _by_number(
    printer: Printer, reader: TerminalReader, cards: Sequence[Card], search: Search
) -> str:
    shown = cards[:MOST]
    while True:
        for row in numbered_rows(shown, printer.room, time.time()):
            printer.line(row)
        found = await reader.brief(line(_HOW, "strong"))
        if isinstance(found, Key) or not found.strip():
            return ""
        words = found.strip()
        if words.isascii() and words.isdecimal() and 1 <= int(words) <= len(shown):
            return shown[int(words) - 1].id
        fits = await _fitting(cards, words, search)
        if len(fits) == 1:
            return fits[0].id
        if not fits:
            printer.say(f"Nothing fits {on_one_line(words)!r}.", "dim")
        shown = fits[:MOST] or shown


async def _fitting(cards: Sequence[Card], words: str, search: Search) -> Sequence[Card]:
    ids = await anyio.to_thread.run_sync(search, words)
    return with_matches(SessionPicker(tuple(cards), words), words, ids).shown
