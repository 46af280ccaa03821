"""/model: pick the model from a list, or change it by name.
/effort: show or change the reasoning effort.
/thinking: the same, in fewer words.
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
    session = context.session
    wanted, save = split_save(arguments)
    if wanted:
        name = await choose(context, wanted)
        if save:
            session.config.remember("model", name)
            context.show(line(DEFAULT_NOTE, "dim"))
        return
    await _pick(context)


async def _pick(context: CommandContext) -> None:
    """Let the user pick a model and an effort from a list."""
    session = context.session
    if not (offers := await session.models.list_offers()):
        raise BadInput("No provider has a key: refold auth login, or /model NAME")
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
    turned = answer.dial.value if answer.dial else effort
    wanted: Effort = next((level for level in get_args(Effort) if level == turned), "")
    if wanted != effort:
        await session.set_effort(wanted)
        context.show(line(f"Effort from the next turn: {wanted or DEFAULT_EFFORT}", "dim"))


async def choose(context: CommandContext, model: str) -> str:
    """Use this model from the next turn. Warn if it is not known."""
    session = context.session
    name = await session.models.check(model)
    doubt = session.models.doubt(name)
    await session.set_model(name)
    context.show(line(f"From the next turn: {escape_to_one_line(name)}", "dim"))
    if doubt:
        context.show(line(escape_to_one_line(doubt), "warn"))
    return name


def split_save(arguments: str) -> tuple[str, bool]:
    """Split off a last word `save`; return the rest, and whether it was there."""
    wanted, _, last = arguments.rpartition(" ")
    return (wanted.strip(), True) if wanted and last == "save" else (arguments, False)


async def run_effort(context: CommandContext, arguments: str) -> None:
    now = context.session.effort
    if not arguments:
        context.show(
            line(f"{now or 'the default of the provider'} ({', '.join(EFFORT_NAMES)})")
        )
        return
    wanted, save = split_save(arguments)
    effort = next((e for e in get_args(Effort) if e == wanted), None)
    if not effort:
        raise BadInput(f"{wanted!r} is not an effort: {', '.join(EFFORT_NAMES)}")
    await context.session.set_effort(effort)
    context.show(line(f"From the next turn: {effort}", "dim"))
    if save:
        context.session.config.remember("effort", effort)
        context.show(line(DEFAULT_NOTE, "dim"))


async def run_thinking(context: CommandContext, arguments: str) -> None:
    now = context.session.effort
    if not arguments:
        shown = (
            "off" if now == "off" else f"on ({now or 'as much as the provider chooses'})"
        )
        context.show(line(f"{shown} (/thinking {'|'.join(THINKING_EFFORTS)} changes it)"))
        return
    if (effort := THINKING_EFFORTS.get(arguments)) is None:
        raise BadInput(f"type /thinking {'|'.join(THINKING_EFFORTS)}, not {arguments!r}")
    await context.session.set_effort(effort)
    text = "no thinking, if the model allows it" if effort == "off" else f"effort {effort}"
    context.show(line(f"From the next turn: {text}", "dim"))
