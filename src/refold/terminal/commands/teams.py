"""/teams: the team of the session, and whether the agent may lead one."""

from refold.client.protocol import SwitchTeams
from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.children_list import team_rows
from refold.views.styled import line


async def run(here: Terminal, rest: str) -> None:
    session = here.session
    if rest in ("on", "off"):
        new = await session.send(SwitchTeams(rest == "on"))
        when = "from the next turn on" if new else "already"
        here.printer.say(f"Teams are {rest} {when}.", "dim")
        return
    if rest:
        raise BadInput(f"type /teams, /teams on or /teams off, not /teams {rest}")
    rows = team_rows(session.view.children, here.printer.room)
    here.printer.lines(rows or [line("There are no teammates in this session.")])
    here.printer.say(f"Teams are {'on' if session.permissions.teams else 'off'}.", "dim")
