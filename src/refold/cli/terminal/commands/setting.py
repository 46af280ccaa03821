"""/config, /theme and /format: what is set, and what of it can be changed from here.

Which settings there are and where they come from is `config`'s business; a colour theme
holds at once, and nothing else of it does.
"""

import os
from typing import get_args

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.provider.command.given import Format
from refold.views.escape import visible

THEMES = ("auto", "dark", "light", "mono")
FORMATS: tuple[str, ...] = get_args(Format)
_SAVED = "And in every session to come."


async def config(here: Conversation, rest: str) -> None:
    """All settings with where they come from, or those of some keys or tables."""
    for row in await here.around.settings(tuple(rest.split())):
        here.paper.say(visible(row))


async def theme(here: Conversation, rest: str) -> None:
    name, _, save = rest.partition(" ")
    if not name:
        here.paper.say(f"{', '.join(THEMES)} (/theme NAME changes it)")
        return
    if name not in THEMES or save not in ("", "save"):
        raise BadInput(f"say /theme {'|'.join(THEMES)}, and save behind it, not {rest!r}")
    if here.paper.look.color:
        here.paper.in_theme(name, os.environ)
        here.paper.line((("accent", name), ("dim", ": the colours from now on")))
    else:
        here.paper.say("Nothing is painted here, so it changes nothing now.", "dim")
    if save:
        here.around.remember("terminal.theme", name)
        here.paper.say(_SAVED, "dim")


async def format_(here: Conversation, rest: str) -> None:
    """How another agent's command line is told the talk: shown, or set for later."""
    if rest:
        if rest not in FORMATS:
            raise BadInput(f"{rest!r} is no format: {', '.join(FORMATS)}")
        here.around.remember("backend.format", rest)
        here.paper.say(f"In every session to come: {rest}", "dim")
        return
    for row in await here.around.settings(("backend.format",)):
        here.paper.say(visible(row))
