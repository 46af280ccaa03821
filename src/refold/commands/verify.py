"""/verify: check the claims of an answer against the journal and the files."""

from functools import partial

from refold.commands.command_context import CommandContext
from refold.commands.history import number_in


async def run(context: CommandContext, arguments: str) -> None:
    """Check the claims of the last answer, or of the answer of turn N."""
    from refold.client.verify import lines

    turn = number_in(arguments, "/verify")
    report = await context.wait(partial(context.session.reports.verify, turn))
    if report is not None:
        context.show(*lines(report))
