"""/iterations: show or set the number of model responses per turn."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Show how many model responses a turn may have, or set it for this session."""
    if arguments:
        if arguments != "off" and not (
            arguments.isascii() and arguments.isdecimal() and int(arguments) > 0
        ):
            raise BadInput(f"type /iterations N, or /iterations off, not {arguments!r}")
        await context.session.set_steps(0 if arguments == "off" else int(arguments))
    chosen, steps = context.session.view.rights.steps, context.session.steps
    origin = "set for this session" if chosen else "by limits.steps"
    context.show(
        line(
            f"A turn may have {steps} model responses, {origin}."
            if steps
            else "A turn may have any number of model responses; /iterations N limits it."
        )
    )
