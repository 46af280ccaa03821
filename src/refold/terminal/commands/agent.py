"""/agent: show or change the agent."""

from collections.abc import Iterable

from refold.client.session import Session
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (
        CompletionChoice(each.name, each.description) for each in session.agents.listed()
    )


async def run(here: Terminal, rest: str) -> None:
    agents = here.session.agents
    if not rest:
        here.printer.say(f"{on_one_line(agents.current)} (/agent NAME changes it)")
        return
    found = await agents.choose(rest)
    here.printer.say(f"From the next turn: {found.name}. {found.description}", "dim")
    if unused := agents.unused_preset(found):
        here.printer.say(unused, "dim")
