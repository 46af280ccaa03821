"""/agents: list the agents that can be chosen."""

from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.wrap import cells

MAIN = "main"


async def run(here: Terminal, rest: str) -> None:
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
