"""/context: context usage, by part."""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.context import context_lines


async def run(here: CommandContext, rest: str) -> None:
    if rest:
        raise BadInput(
            "/context takes no argument; `refold context --json` is for programs"
        )
    report = here.session.reports.context()
    here.show(*context_lines(report, signs=here.look.signs))
