"""Lets the user pick a session of this directory, for the flag -r without a name.

`console.list_prompt` draws the list.
"""

import os
import time
from collections.abc import Sequence

import anyio

from refold.app.session_index import session_index
from refold.client.catalogue import SessionCatalogue, sessions_of
from refold.config.paths import current_directory, paths
from refold.config.settings import Terminal as TerminalSettings
from refold.console.list_prompt import pick
from refold.errors import BadInput
from refold.headless.streams import WaitNotice, print_error
from refold.journal.catalogue.session_card import Card, card_label
from refold.journal.session_index import SessionIndex
from refold.views.session_list import session_picker

_MAX_NAMED = 5


def pick_one(terminal: TerminalSettings) -> str:
    """Let the user pick a session at the terminal. Return its id; "" if the user cancels."""
    index, cards = _sessions_here()
    from refold.terminal.this_terminal import open_terminal

    printer, reader = open_terminal(display=terminal.display, theme=terminal.theme)
    search = SessionCatalogue(index, current_directory()).search_while_typing
    picker = session_picker(cards, time.time())
    answer = anyio.run(pick, printer, reader, picker, search)
    return answer.selection.id if answer and answer.selection else ""


def no_terminal_error() -> BadInput:
    """Return the error for -r without a terminal, with the names of the newest sessions."""
    _, cards = _sessions_here()
    few = "\n".join(f"  {card_label(card)}" for card in cards[:_MAX_NAMED])
    return BadInput(f"-r needs a session in a pipe or a script; the newest here are\n{few}")


def _sessions_here() -> tuple[SessionIndex, Sequence[Card]]:
    """Return the index of sessions, and the sessions of this directory.

    Raises `BadInput` if there are none.
    """
    index = session_index(paths(os.environ))
    catalogue = index.catalogue(WaitNotice(), print_error)
    if cards := sessions_of(catalogue, current_directory()):
        return index, cards
    raise BadInput(
        f"no session was started in {current_directory()} yet: name one with -r ID (refold sessions "
        "list --all)"
    )
