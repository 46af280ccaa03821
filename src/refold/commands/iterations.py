"""/iterations: show or set the number of model responses per turn."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    if rest:
        if rest != "off" and not (rest.isascii() and rest.isdecimal() and int(rest) > 0):
            raise BadInput(f"type /iterations N, or /iterations off, not {rest!r}")
        await here.session.set_steps(0 if rest == "off" else int(rest))
    chosen, steps = here.session.view.rights.steps, here.session.steps
    origin = "set for this session" if chosen else "by limits.steps"
    here.show(
        line(
            f"A turn may have {steps} model responses, {origin}."
            if steps
            else "A turn may have any number of model responses; /iterations N limits it."
        )
    )
