"""/model: show or change the model."""

from collections.abc import Iterable

from refold.terminal.input.completion import CompletionChoice
from refold.terminal.surroundings import Surroundings
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.styled import line

DEFAULT = "It is the default of new sessions."


def choices(around: Surroundings) -> Iterable[CompletionChoice]:
    return map(CompletionChoice, around.models)


async def run(here: Terminal, rest: str) -> None:
    around, view = here.around, here.session.view
    wanted, save = split_save(rest)
    if wanted:
        name = await around.choose_model(wanted)
        await here.session.inbox.choose_model(name)
        here.printer.say(f"From the next turn: {on_one_line(name)}", "dim")
        if save:
            around.remember("model", name)
            here.printer.say(DEFAULT, "dim")
        return
    now = view.session.model or around.model
    here.printer.say(f"{on_one_line(now) or 'none is set'} (/model NAME changes it)")
    for name in around.models:
        here.printer.line(line(f"  {on_one_line(name)}", "dim"))


def split_save(rest: str) -> tuple[str, bool]:
    """What was typed before a last word `save`, and whether that is there."""
    wanted, _, last = rest.rpartition(" ")
    return (wanted.strip(), True) if wanted and last == "save" else (rest, False)
