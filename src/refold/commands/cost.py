"""/cost: tokens and cost of this session."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.cost import spending_lines
from refold.views.number_format import spent_row, window_share


async def run(here: Terminal, rest: str) -> None:
    if rest not in ("", "turns"):
        raise BadInput(f"type /cost, or /cost turns, not {rest!r}")
    view = here.session.view
    full = window_share(view.account.last_usage, view.conversation.system_prompt.window)
    found = await here.session.reports.cost()
    room = here.printer.room
    here.printer.lines(spending_lines(found, full, room, turns=rest == "turns"))
    if (below := view.account.children_spent).answers:
        here.printer.say(f"subagents: {spent_row(below)}", "dim")
