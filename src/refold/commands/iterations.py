"""/iterations: show or set the number of model responses per turn."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    if rest:
        if rest != "off" and not (rest.isascii() and rest.isdecimal() and int(rest) > 0):
            raise BadInput(f"type /iterations N, or /iterations off, not {rest!r}")
        await here.session.set_steps(0 if rest == "off" else int(rest))
    chosen, steps = here.session.view.rights.steps, here.session.steps
    where = "set for this session" if chosen else "by limits.steps"
    here.printer.say(
        f"A turn may have {steps} model responses, {where}."
        if steps
        else "A turn may have any number of model responses; /iterations N limits it."
    )
