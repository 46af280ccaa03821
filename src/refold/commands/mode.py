"""/mode: show or change what runs without asking.
/approval: ask as usual, or run everything without asking.

`permissions` decides what a mode means.
"""

from collections.abc import Sequence

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.table import MODE_NAMES
from refold.errors import BadInput
from refold.values import modes
from refold.values.modes import MODE_MEANINGS, Mode
from refold.values.similar_names import similar
from refold.views.styled import line

# without bypass, which the user must name
_MODE_CYCLE: Sequence[Mode] = ("default", "accept-edits", "sandbox", "plan")


async def run(context: CommandContext, arguments: str) -> None:
    if not arguments:
        current = context.session.mode
        for name in MODE_NAMES:
            sign = "*" if name == current else " "
            context.show(line(f"{sign} {name:14}{MODE_MEANINGS[name]}"))
        return
    await change_mode(context, _parse_mode(arguments))


async def change_mode(context: CommandContext, mode: Mode) -> None:
    await context.session.set_mode(mode)
    style = "warn" if mode == "bypass" else "dim"
    context.show(line(f"{mode}: {MODE_MEANINGS[mode]}", style))


def _parse_mode(text: str) -> Mode:
    """Return the mode with this name. Raises `BadInput` with a similar name, if any."""
    mode = modes.MODE_NAMES.get(text)
    if mode is not None:
        return mode
    suggestions = similar(text, modes.MODE_NAMES, limit=1)
    hint = (
        f"Did you mean {modes.MODE_NAMES[suggestions[0]]}?"
        if suggestions
        else f"There are {', '.join(MODE_NAMES)}."
    )
    raise BadInput(f"{text!r} is not a mode. {hint}")


async def run_approval(context: CommandContext, arguments: str) -> None:
    """Show or change whether calls are asked about: on is the mode default, off is bypass."""
    if not arguments:
        enabled = context.session.mode != "bypass"
        context.show(line(f"{'on' if enabled else 'off'} (/approval on|off changes it)"))
        return
    if arguments not in ("on", "off"):
        raise BadInput(f"type /approval on or /approval off, not {arguments!r}")
    await change_mode(context, "default" if arguments == "on" else "bypass")


async def set_next_mode(session: Session) -> None:
    sandboxed = session.permissions.facts().sandboxed
    await session.set_mode(mode_after(session.mode, sandboxed=sandboxed))


def mode_after(mode: Mode, *, sandboxed: bool) -> Mode:
    """Return the mode after `mode` in the cycle of modes that a key switches through.

    Return the first mode of the cycle if `mode` is not in it. The mode sandbox is left out
    unless a sandbox works (`sandboxed`).
    """
    cycle: list[Mode] = [name for name in _MODE_CYCLE if sandboxed or name != "sandbox"]
    if mode not in cycle:
        return cycle[0]
    return cycle[(cycle.index(mode) + 1) % len(cycle)]
