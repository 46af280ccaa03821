"""/context: show how much of the context window each part uses."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.context import context_lines


async def run(context: CommandContext, arguments: str) -> None:
    if arguments:
        raise BadInput(
            "/context takes no argument; `refold context --json` is for programs"
        )
    report = context.session.reports.context()
    context.show(*context_lines(report, symbols=context.look.signs))
