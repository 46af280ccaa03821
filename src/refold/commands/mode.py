"""/mode: show or change what runs without asking.
/approval: ask as usual, or run everything without asking.

What a mode means is decided in `permissions`.
"""

from refold.commands.table import MODES
from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.values import modes
from refold.values.modes import MEANINGS, Mode
from refold.values.similar_names import similar


async def run(here: Terminal, rest: str) -> None:
    if not rest:
        now = here.session.mode
        for each in MODES:
            sign = "*" if each == now else " "
            here.printer.say(f"{sign} {each:14}{MEANINGS[each]}")
        return
    await change(here, _named(rest))


async def change(here: Terminal, wanted: Mode) -> None:
    await here.session.set_mode(wanted)
    style = "warn" if wanted == "bypass" else "dim"
    here.printer.say(f"{wanted}: {MEANINGS[wanted]}", style)


def _named(text: str) -> Mode:
    if (found := modes.MODES.get(text)) is not None:
        return found
    near = similar(text, modes.MODES, 1)
    hint = (
        f"Did you mean {modes.MODES[near[0]]}?"
        if near
        else f"There are {', '.join(MODES)}."
    )
    raise BadInput(f"{text!r} is not a mode. {hint}")


async def run_approval(here: Terminal, rest: str) -> None:
    if not rest:
        on = here.session.mode != "bypass"
        here.printer.say(f"{'on' if on else 'off'} (/approval on|off changes it)")
        return
    if rest not in ("on", "off"):
        raise BadInput(f"type /approval on or /approval off, not {rest!r}")
    await change(here, "default" if rest == "on" else "bypass")
