"""/agent: pick the agent from a list, or change it by name.
/agents: list the agents that can be chosen.
"""

from collections.abc import Iterable
from functools import partial

from refold.client.session import Session
from refold.client.types import Profile
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, with_selection
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (
        CompletionChoice(agent.name, agent.description)
        for agent in session.agents.profiles()
    )


async def run(context: CommandContext, arguments: str) -> None:
    """Use another agent from the next turn; without a name, let the user pick one."""
    session = context.session
    name = arguments
    if not name:
        name = await _pick(context)
        if name in ("", session.agent):
            return
    await session.set_agent(name)
    agent = session.agents.find(name)
    context.show(line(f"From the next turn: {agent.name}. {agent.description}", "dim"))
    if unused_preset_notice := session.agents.preset_notice(agent):
        context.show(line(unused_preset_notice, "dim"))


async def _pick(context: CommandContext) -> str:
    """Let the user pick an agent. Return its name, or "" if the user picks none."""
    agents = context.session.agents
    listed = agents.profiles()
    column_width = max(cells(profile.name) for profile in listed)
    items = (
        PickerItem(
            profile.name,
            partial(_picker_row, profile, column_width),
            f"{profile.name} {profile.description}",
        )
        for profile in listed
    )
    picker = with_selection(Picker("Which agent?", tuple(items)), context.session.agent)
    answer = await context.pick(picker)
    return answer.selection.id if answer and answer.selection else ""


def _picker_row(agent: Profile, column_width: int, width: int) -> Line:
    """Return the line for an agent in a picker: its name, description and origin."""
    padding = " " * (column_width - cells(agent.name))
    origin = f"  ({escape_to_one_line(agent.where)})" if agent.where else ""
    about_cells = width - column_width - 2 - cells(origin)
    about = cut(escape_to_one_line(agent.description), about_cells)
    return (("plain", f"{agent.name}{padding}  "), ("dim", f"{about}{origin}"))


async def run_agents(context: CommandContext, arguments: str) -> None:
    """List the agents, with a star at the current one, and problems in their files."""
    agents = context.session.agents
    profiles, current = agents.profiles(), context.session.agent
    width = max(cells(agent.name) for agent in profiles)
    for agent in profiles:
        mark = "*" if agent.name == current else " "
        pad = " " * (width - cells(agent.name))
        about = escape_to_one_line(agent.description)
        origin = f"  ({escape_to_one_line(agent.where)})" if agent.where else ""
        context.show((
            ("accent", f"{mark} {agent.name}{pad}"), ("plain", f"  {about}"), ("dim", origin),
        ))  # fmt: skip
    for problem in agents.problems:
        context.show(line(escape_to_one_line(problem), "dim"))
