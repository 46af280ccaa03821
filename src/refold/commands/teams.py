"""/teams: show the session's team, allow or forbid teams, or message a teammate."""

from refold.client.protocol import MailTeammate, SwitchTeams
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.children_list import team_rows
from refold.views.escape import escape_to_one_line
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Show the team, allow or forbid the agent to lead a team, or message a teammate."""
    session = context.session
    if arguments in ("on", "off"):
        has_changed = await session.send(SwitchTeams(arguments == "on"))
        when = "from the next turn on" if has_changed else "already"
        context.show(line(f"Teams are {arguments} {when}.", "dim"))
        return
    teammate, _, text = arguments.partition(" ")
    if text.strip():
        await session.send(MailTeammate(teammate, text.strip()))
        context.show(line(f"Sent to {escape_to_one_line(teammate)}.", "dim"))
        return
    if arguments:
        raise BadInput(
            f"type /teams, /teams on, /teams off or /teams NAME MESSAGE, not /teams {arguments}"
        )
    rows = team_rows(session.view.children, context.look.width)
    context.show(*rows or [line("There are no teammates in this session.")])
    context.show(line(f"Teams are {'on' if session.permissions.teams else 'off'}.", "dim"))
