"""/model: pick the model from a list, or change it by name.
/effort: show or change the reasoning effort.
/thinking: show or change the effort, in words such as on and off.
"""

from collections.abc import Iterable
from typing import get_args

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.commands.table import EFFORT_NAMES, THINKING_EFFORTS
from refold.errors import BadInput
from refold.values.modes import Effort
from refold.views.escape import escape_to_one_line
from refold.views.model_picker import DEFAULT_EFFORT, model_picker
from refold.views.styled import line

DEFAULT_NOTE = "It is the default of new sessions."


def choices(session: Session) -> Iterable[CompletionChoice]:
    return map(CompletionChoice, session.models.names())


async def run(context: CommandContext, arguments: str) -> None:
    """Use another model, and with `save` make it the default; without a name, show a list."""
    model, save = split_save(arguments)
    if not model:
        await _pick(context)
        return
    name = await choose(context, model)
    if save:
        context.session.config.remember("model", name)
        context.show(line(DEFAULT_NOTE, "dim"))


async def _pick(context: CommandContext) -> None:
    """Let the user pick a model and a reasoning effort from a list, and use them."""
    session = context.session
    offers = await session.models.list_offers()
    if not offers:
        raise BadInput("No provider has a key: refold auth set PROVIDER, or /model NAME")
    effort = session.effort
    picker = model_picker(offers, session.model, effort, EFFORT_NAMES)
    answer = await context.pick(picker)
    if answer is None or answer.selection is None:
        return
    if answer.selection.id == session.model:
        context.show(
            line(f"The model is still {escape_to_one_line(session.model)}.", "dim")
        )
    else:
        await choose(context, answer.selection.id)
    picked_effort = answer.dial.value if answer.dial else effort
    # "" is the default of the provider
    new_effort: Effort = next(
        (level for level in get_args(Effort) if level == picked_effort), ""
    )
    if new_effort != effort:
        await session.set_effort(new_effort)
        shown = new_effort or DEFAULT_EFFORT
        context.show(line(f"Effort from the next turn: {shown}", "dim"))


async def choose(context: CommandContext, model: str) -> str:
    """Use `model` from the next turn on, and return its full name. Warn if it is unknown."""
    session = context.session
    name = await session.models.check(model)
    warning = session.models.name_warning(name)
    await session.set_model(name)
    context.show(line(f"From the next turn: {escape_to_one_line(name)}", "dim"))
    if warning:
        context.show(line(escape_to_one_line(warning), "warn"))
    return name


def split_save(arguments: str) -> tuple[str, bool]:
    """Return `arguments` without a last word `save`, and whether `save` was there."""
    before, _, last = arguments.rpartition(" ")
    if before and last == "save":
        return before.strip(), True
    return arguments, False


async def run_effort(context: CommandContext, arguments: str) -> None:
    """Show the reasoning effort, or change it from the next turn."""
    current = context.session.effort
    if not arguments:
        context.show(
            line(f"{current or 'the default of the provider'} ({', '.join(EFFORT_NAMES)})")
        )
        return
    level, save = split_save(arguments)
    effort = next((e for e in get_args(Effort) if e == level), None)
    if not effort:
        raise BadInput(f"{level!r} is not an effort: {', '.join(EFFORT_NAMES)}")
    await context.session.set_effort(effort)
    context.show(line(f"From the next turn: {effort}", "dim"))
    if save:
        context.session.config.remember("effort", effort)
        context.show(line(DEFAULT_NOTE, "dim"))


async def run_thinking(context: CommandContext, arguments: str) -> None:
    """Show how much the model thinks, or set the effort by words such as on and off."""
    current = context.session.effort
    if not arguments:
        shown = "off"
        if current != "off":
            shown = f"on ({current or 'as much as the provider chooses'})"
        context.show(line(f"{shown} (/thinking {'|'.join(THINKING_EFFORTS)} changes it)"))
        return
    if (effort := THINKING_EFFORTS.get(arguments)) is None:
        raise BadInput(f"type /thinking {'|'.join(THINKING_EFFORTS)}, not {arguments!r}")
    await context.session.set_effort(effort)
    text = "no thinking, if the model allows it" if effort == "off" else f"effort {effort}"
    context.show(line(f"From the next turn: {text}", "dim"))
