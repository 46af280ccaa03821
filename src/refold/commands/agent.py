"""/agent: pick the agent from a list, or change it by name.
/agents: list the agents that can be chosen.
"""

from collections.abc import Iterable
from functools import partial

from refold.client.session import Session
from refold.client.types import Profile
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.views.escape import on_one_line
from refold.views.picker import Picker, PickerItem, picker_at
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

MAIN_AGENT = "main"


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (
        CompletionChoice(each.name, each.description) for each in session.agents.profiles()
    )


async def run(here: CommandContext, rest: str) -> None:
    agents = here.session.agents
    if not rest:
        rest = await _pick(here)
        if rest in ("", agents.current or MAIN_AGENT):
            return
    found = await agents.choose(rest)
    here.show(line(f"From the next turn: {found.name}. {found.description}", "dim"))
    if unused := agents.preset_notice(found):
        here.show(line(unused, "dim"))


async def _pick(here: CommandContext) -> str:
    """Return the name of the agent picked from a list, or ""."""
    agents = here.session.agents
    listed = agents.profiles()
    wide = max(cells(each.name) for each in listed)

    def row(room: int, agent: Profile) -> Line:
        pad = " " * (wide - cells(agent.name))
        where = f"  ({on_one_line(agent.where)})" if agent.where else ""
        about = cut(on_one_line(agent.description), room - wide - 2 - cells(where))
        return (("plain", f"{agent.name}{pad}  "), ("dim", f"{about}{where}"))

    items = (
        PickerItem(each.name, partial(row, agent=each), f"{each.name} {each.description}")
        for each in listed
    )
    picker = picker_at(Picker("Which agent?", tuple(items)), agents.current or MAIN_AGENT)
    found = await here.pick(picker)
    return found.selection.id if found and found.selection else ""


async def run_agents(here: CommandContext, rest: str) -> None:
    agents = here.session.agents
    found, current = agents.profiles(), agents.current
    now = next((each.name for each in found if each.name == current), MAIN_AGENT)
    wide = max(cells(each.name) for each in found)
    for each in found:
        mark = "*" if each.name == now else " "
        pad = " " * (wide - cells(each.name))
        about = on_one_line(each.description)
        where = f"  ({on_one_line(each.where)})" if each.where else ""
        here.show((
            ("accent", f"{mark} {each.name}{pad}"), ("plain", f"  {about}"), ("dim", where),
        ))  # fmt: skip
    for problem in agents.problems:
        here.show(line(on_one_line(problem), "dim"))
