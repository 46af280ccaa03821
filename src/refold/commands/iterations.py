"""/iterations: show or set the number of model responses per turn."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Show how many model responses a turn may have, or set it for this session."""
    if arguments:
        await context.session.set_steps(_parse_steps(arguments))
    steps = context.session.steps
    if not steps:
        text = "A turn may have any number of model responses; /iterations N limits it."
    else:
        is_set_for_session = context.session.view.rights.steps != 0
        origin = "set for this session" if is_set_for_session else "by limits.steps"
        text = f"A turn may have {steps} model responses, {origin}."
    context.show(line(text))


def _parse_steps(text: str) -> int:
    """Return the number of responses that `text` names; 0 for "off", which uses the setting.

    Raises `BadInput` for anything else.
    """
    if text == "off":
        return 0
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise BadInput(f"type /iterations N, or /iterations off, not {text!r}")
