"""/cost: show the tokens and the cost of this session."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.cost import spending_lines
from refold.views.number_format import spent_row, window_share
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    if arguments not in ("", "turns"):
        raise BadInput(f"type /cost, or /cost turns, not {arguments!r}")
    view = context.session.view
    share_of_window = window_share(
        view.account.last_usage, view.conversation.system_prompt.window
    )
    report = await context.session.reports.cost()
    width = context.look.width
    context.show(
        *spending_lines(report, share_of_window, width, turns=arguments == "turns")
    )
    spent_by_subagents = view.account.children_spent
    if spent_by_subagents.answers:
        context.show(line(f"subagents: {spent_row(spent_by_subagents)}", "dim"))
