"""/agent: show or change the agent.
/agents: list the agents that can be chosen.
"""

from collections.abc import Iterable

from refold.client.session import Session
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.wrap import cells


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


MAIN = "main"


async def run_agents(here: Terminal, rest: str) -> None:
    agents = here.session.agents
    found, current = agents.listed(), agents.current
    now = next((each.name for each in found if each.name == current), MAIN)
    wide = max(cells(each.name) for each in found)
    for each in found:
        mark = "*" if each.name == now else " "
        pad = " " * (wide - cells(each.name))
        about = on_one_line(each.description)
        where = f"  ({on_one_line(each.where)})" if each.where else ""
        here.printer.line((
            ("accent", f"{mark} {each.name}{pad}"), ("plain", f"  {about}"), ("dim", where),
        ))  # fmt: skip
    for problem in agents.problems:
        here.printer.say(on_one_line(problem), "dim")
