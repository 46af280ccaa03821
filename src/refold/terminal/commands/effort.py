"""/effort: show or change the reasoning effort."""

from typing import get_args

from refold.errors import BadInput
from refold.terminal.commands.model import DEFAULT, split_save
from refold.terminal.commands.table import EFFORTS
from refold.terminal.terminal import Terminal
from refold.values.modes import Effort


async def run(here: Terminal, rest: str) -> None:
    now = here.session.effort
    if not rest:
        here.printer.say(f"{now or 'the default of the provider'} ({', '.join(EFFORTS)})")
        return
    wanted, save = split_save(rest)
    found = next((e for e in get_args(Effort) if e == wanted), None)
    if not found:
        raise BadInput(f"{wanted!r} is not an effort: {', '.join(EFFORTS)}")
    await here.session.set_effort(found)
    here.printer.say(f"From the next turn: {found}", "dim")
    if save:
        here.session.config.remember("effort", found)
        here.printer.say(DEFAULT, "dim")
