"""/agent: show or change the agent."""

from collections.abc import Iterable

from refold.agents.profile import unused_preset
from refold.agents.registry import choose_agent
from refold.config.settings import Settings
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.surroundings import Surroundings
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


def choices(around: Surroundings) -> Iterable[CompletionChoice]:
    return (
        CompletionChoice(each.name, each.description)
        for each in around.agents.every("main")
    )


async def run(here: Terminal, rest: str) -> None:
    if not rest:
        here.printer.say(f"{on_one_line(current(here))} (/agent NAME changes it)")
        return
    found = await choose_agent(here.session.inbox, here.around.agents, rest)
    here.printer.say(f"From the next turn: {found.name}. {found.description}", "dim")
    preset = here.around.preset
    # The default preset was not chosen by the person.
    if unused := unused_preset(found, "" if preset == Settings().preset else preset):
        here.printer.say(unused, "dim")


def current(here: Terminal) -> str:
    return here.session.view.session.agent or here.around.agent
