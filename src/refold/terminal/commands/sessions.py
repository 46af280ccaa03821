"""/sessions: list the other sessions of this directory, and switch to one."""

import time

from refold.errors import BadInput
from refold.terminal.commands.resume import others, switch_to_one
from refold.terminal.terminal import Terminal
from refold.views.session_list import SessionPicker, numbered_rows

MOST = 20  # in the list


async def run(here: Terminal, rest: str) -> None:
    """The newest; with words, those whose name, title or tag contains them."""
    cards = await others(here)
    found = SessionPicker(tuple(cards), rest).shown
    if not found:
        raise BadInput(f"no other session of this directory matches {rest!r}")
    shown = found[:MOST]
    here.printer.lines(numbered_rows(shown, here.printer.room, time.time()))
    if more := len(found) - len(shown):
        here.printer.say(f"{more} older ones: /sessions WORDS, or /resume", "dim")
    await switch_to_one(here, [card.id for card in shown])
