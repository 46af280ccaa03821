"""/vi: show which keys are on, or switch between vi and Emacs keys for this run."""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext, terminal_of
from refold.errors import BadInput
from refold.views.styled import line

# What each argument sets; None changes nothing.
_VI_SETTINGS: Mapping[str, bool | None] = {"": None, "on": True, "off": False}
_CHANGE_HINT = " /vi on|off changes it."


async def run(context: CommandContext, arguments: str) -> None:
    """Show which keys are on, or switch between vi and Emacs keys."""
    if arguments not in _VI_SETTINGS:
        raise BadInput(f"type /vi, /vi on or /vi off, not {arguments!r}")
    is_on = terminal_of(context, "/vi").use_vi_keys(_VI_SETTINGS[arguments])
    if is_on is None:
        raise BadInput("this display has no line editor, so it has no vi keys")
    text = "vi keys: Esc, then a command." if is_on else "Emacs keys."
    if not arguments:
        text += _CHANGE_HINT
    context.show(line(text, "dim"))
