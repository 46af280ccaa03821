"""/model: show or change the model."""

from collections.abc import Iterable

from refold.client.session import Session
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
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
