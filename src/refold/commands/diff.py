"""/diff: the changes of files since the session began, file by file.

The comparison is with the first checkpoint, so changes by commands are included.
"""

from refold.console.pager import show
from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.call_summary import diff_report


async def run(here: Terminal, rest: str) -> None:
    """All changed files; with FILE, those whose path contains it."""
    found = await here.session.workspace.diff()
    if not found:
        here.printer.say("No file has changed in this session.")
        return
    wanted = [each for each in found if rest in each.path]
    if not wanted:
        raise BadInput(f"no changed file has {rest!r} in its path; /diff lists them")
    where = here.session.view.session.directory
    await show([*diff_report(wanted, here.printer.room - 1, where)], here.printer)
