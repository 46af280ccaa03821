"""/context: context usage, by part."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.context import context_lines


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput(
            "/context takes no argument; `refold context --json` is for programs"
        )
    found = here.session.reports.context()
    here.printer.lines(context_lines(found, signs=here.printer.look.signs))
