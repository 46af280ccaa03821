"""/approval: ask as usual, or run everything without asking."""

from refold.errors import BadInput
from refold.terminal.commands.mode import change
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    if not rest:
        on = here.session.mode != "bypass"
        here.printer.say(f"{'on' if on else 'off'} (/approval on|off changes it)")
        return
    if rest not in ("on", "off"):
        raise BadInput(f"type /approval on or /approval off, not {rest!r}")
    await change(here, "default" if rest == "on" else "bypass")
