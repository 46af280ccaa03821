"""/model: show or change the model.
/effort: show or change the reasoning effort.
/thinking: the same, in fewer words.
"""

from collections.abc import Iterable
from typing import get_args

from refold.client.session import Session
from refold.errors import BadInput
from refold.terminal.commands.table import EFFORTS, THINKING
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
from refold.values.modes import Effort
from refold.views.escape import on_one_line
from refold.views.styled import line

DEFAULT = "It is the default of new sessions."


def choices(session: Session) -> Iterable[CompletionChoice]:
    return map(CompletionChoice, session.models.names())


async def run(here: Terminal, rest: str) -> None:
    session = here.session
    wanted, save = split_save(rest)
    if wanted:
        name = await session.models.check(wanted)
        await session.set_model(name)
        here.printer.say(f"From the next turn: {on_one_line(name)}", "dim")
        if save:
            session.config.remember("model", name)
            here.printer.say(DEFAULT, "dim")
        return
    here.printer.say(
        f"{on_one_line(session.model) or 'none is set'} (/model NAME changes it)"
    )
    for name in session.models.names():
        here.printer.line(line(f"  {on_one_line(name)}", "dim"))


def split_save(rest: str) -> tuple[str, bool]:
    """What was typed before a last word `save`, and whether that is there."""
    wanted, _, last = rest.rpartition(" ")
    return (wanted.strip(), True) if wanted and last == "save" else (rest, False)


async def run_effort(here: Terminal, rest: str) -> None:
    now = here.session.effort
    if not rest:
        here.printer.say(f"{now or 'the default of the provider'} ({', '.join(EFFORTS)})")
        return
    wanted, save = split_save(rest)
    found = next((e for e in get_args(Effort) if e == wanted), None)
    if not found:
        raise BadInput(f"{wanted!r} is not an effort: {', '.join(EFFORTS)}")
    await here.session.set_effort(found)
    here.printer.say(f"From the next turn: {found}", "dim")
    if save:
        here.session.config.remember("effort", found)
        here.printer.say(DEFAULT, "dim")


async def run_thinking(here: Terminal, rest: str) -> None:
    now = here.session.effort
    if not rest:
        shown = (
            "off" if now == "off" else f"on ({now or 'as much as the provider chooses'})"
        )
        here.printer.say(f"{shown} (/thinking {'|'.join(THINKING)} changes it)")
        return
    if (effort := THINKING.get(rest)) is None:
        raise BadInput(f"type /thinking {'|'.join(THINKING)}, not {rest!r}")
    await here.session.set_effort(effort)
    said = "no thinking, if the model allows it" if effort == "off" else f"effort {effort}"
    here.printer.say(f"From the next turn: {said}", "dim")
