"""/cost: tokens and cost of this session."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.cost import spending_lines
from refold.views.number_format import spent_row, window_share
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    if rest not in ("", "turns"):
        raise BadInput(f"type /cost, or /cost turns, not {rest!r}")
    view = here.session.view
    full = window_share(view.account.last_usage, view.conversation.system_prompt.window)
    report = await here.session.reports.cost()
    room = here.look.room
    here.show(*spending_lines(report, full, room, turns=rest == "turns"))
    if (below := view.account.children_spent).answers:
        here.show(line(f"subagents: {spent_row(below)}", "dim"))
