"""/diff: show how files have changed since the session began.

Files are compared with the first checkpoint, so changes by commands are included.
"""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.call_summary import diff_report
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Show all changed files, or only those whose path contains `arguments`."""
    changes = await context.session.workspace.diff()
    if not changes:
        context.show(line("No file has changed in this session."))
        return
    matching = [change for change in changes if arguments in change.path]
    if not matching:
        raise BadInput(f"no changed file has {arguments!r} in its path; /diff lists them")
    directory = context.session.view.session.directory
    width = context.look.width - 1
    await context.show_long(
        await anyio.to_thread.run_sync(lambda: [*diff_report(matching, width, directory)])
    )
