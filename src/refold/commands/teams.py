"""/teams: the team of the session, whether the agent may lead one, and mail to a member."""

from refold.client.protocol import MailTeammate, SwitchTeams
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.children_list import team_rows
from refold.views.escape import on_one_line
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    session = here.session
    if rest in ("on", "off"):
        new = await session.send(SwitchTeams(rest == "on"))
        when = "from the next turn on" if new else "already"
        here.show(line(f"Teams are {rest} {when}.", "dim"))
        return
    teammate, _, text = rest.partition(" ")
    if text.strip():
        await session.send(MailTeammate(teammate, text.strip()))
        here.show(line(f"Sent to {on_one_line(teammate)}.", "dim"))
        return
    if rest:
        raise BadInput(
            f"type /teams, /teams on, /teams off or /teams NAME MESSAGE, not /teams {rest}"
        )
    rows = team_rows(session.view.children, here.look.room)
    here.show(*rows or [line("There are no teammates in this session.")])
    here.show(line(f"Teams are {'on' if session.permissions.teams else 'off'}.", "dim"))
