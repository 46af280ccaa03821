"""/diff: the changes of files since the session began, file by file.

The comparison is with the first checkpoint, so changes by commands are included.
"""

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.call_summary import diff_report
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    """Show all changed files; with FILE, those whose path contains it."""
    changes = await here.session.workspace.diff()
    if not changes:
        here.show(line("No file has changed in this session."))
        return
    wanted = [change for change in changes if rest in change.path]
    if not wanted:
        raise BadInput(f"no changed file has {rest!r} in its path; /diff lists them")
    directory = here.session.view.session.directory
    await here.show_long([*diff_report(wanted, here.look.room - 1, directory)])
