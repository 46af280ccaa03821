"""/theme: show or change the colours."""

import os

from refold.errors import BadInput
from refold.terminal.commands.table import THEMES
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    name, _, save = rest.partition(" ")
    if not name:
        here.printer.say(f"{', '.join(THEMES)} (/theme NAME changes it)")
        return
    if name not in THEMES or save not in ("", "save"):
        raise BadInput(f"type /theme {'|'.join(THEMES)}, or add save, not {rest!r}")
    if here.printer.look.color:
        here.printer.in_theme(name, os.environ)
        here.printer.line((("accent", name), ("dim", ": the colours from now on")))
    else:
        here.printer.say("This terminal shows no colours, so nothing changes now.", "dim")
    if save:
        here.session.config.remember("terminal.theme", name)
        here.printer.say("It is the default of new sessions.", "dim")
