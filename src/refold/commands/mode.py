"""/mode: show or change what runs without asking.
/approval: ask as usual, or run everything without asking.

What a mode means is decided in `permissions`.
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

# without bypass, which must be asked for by name
_MODE_CYCLE: Sequence[Mode] = ("default", "accept-edits", "sandbox", "plan")


async def run(context: CommandContext, arguments: str) -> None:
    if not arguments:
        now = context.session.mode
        for name in MODE_NAMES:
            sign = "*" if name == now else " "
            context.show(line(f"{sign} {name:14}{MODE_MEANINGS[name]}"))
        return
    await change_mode(context, _parse_mode(arguments))


async def change_mode(context: CommandContext, mode: Mode) -> None:
    await context.session.set_mode(mode)
    style = "warn" if mode == "bypass" else "dim"
    context.show(line(f"{mode}: {MODE_MEANINGS[mode]}", style))


def _parse_mode(text: str) -> Mode:
    if (mode := modes.MODE_NAMES.get(text)) is not None:
        return mode
    suggestions = similar(text, modes.MODE_NAMES, 1)
    hint = (
        f"Did you mean {modes.MODE_NAMES[suggestions[0]]}?"
        if suggestions
        else f"There are {', '.join(MODE_NAMES)}."
    )
    raise BadInput(f"{text!r} is not a mode. {hint}")


async def run_approval(context: CommandContext, arguments: str) -> None:
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
    """Return the next mode; mode sandbox is skipped where no sandbox works."""
    modes: list[Mode] = [name for name in _MODE_CYCLE if sandboxed or name != "sandbox"]
    return modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0]
