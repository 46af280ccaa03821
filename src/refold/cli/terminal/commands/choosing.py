"""/model and /effort: what thinks, and how hard, from the next turn on."""

from collections.abc import Iterable, Sequence
from typing import get_args

from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.surroundings import Surroundings
from refold.errors import BadInput
from refold.values.effort import Effort
from refold.views.escape import on_one_line
from refold.views.styled import line

EFFORTS: Sequence[str] = tuple(filter(None, get_args(Effort)))


def models(around: Surroundings) -> Iterable[CompletionChoice]:
    return map(CompletionChoice, around.models)


async def model(here: Conversation, rest: str) -> None:
    around, view = here.around, here.session.view
    wanted, save = _to_save(rest)
    if wanted:
        name = await around.choose_model(wanted)
        await here.session.inbox.choose_model(name)
        here.paper.say(f"From the next turn on: {on_one_line(name)}", "dim")
        if save:
            around.remember("model", name)
            here.paper.say("And in every session to come.", "dim")
        return
    now = view.about.model or around.model
    here.paper.say(f"{on_one_line(now) or 'none is set'} (/model NAME changes it)")
    for name in around.models:
        here.paper.line(line(f"  {on_one_line(name)}", "dim"))


async def effort(here: Conversation, rest: str) -> None:
    now = here.session.view.about.effort or here.around.effort
    if not rest:
        here.paper.say(f"{now or 'as the provider has it'} ({', '.join(EFFORTS)})")
        return
    wanted, save = _to_save(rest)
    found = next((e for e in get_args(Effort) if e == wanted), None)
    if not found:
        raise BadInput(f"{wanted!r} is no effort: {', '.join(EFFORTS)}")
    await here.session.inbox.choose_effort(found)
    here.paper.say(f"From the next turn on: {found}", "dim")
    if save:
        here.around.remember("effort", found)
        here.paper.say("And in every session to come.", "dim")


def _to_save(rest: str) -> tuple[str, bool]:
    """What was asked for, and whether `save` stands behind it."""
    wanted, _, last = rest.rpartition(" ")
    return (wanted.strip(), True) if wanted and last == "save" else (rest, False)
