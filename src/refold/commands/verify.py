"""/verify: check the claims of an answer against the journal and the files."""

from functools import partial

from refold.commands.history import number_in
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    """The claims of the last answer, or of that of turn N."""
    from refold.client.verify import lines

    turn = number_in(rest, "/verify")
    report = await here.job.wait(partial(here.session.reports.verify, turn))
    if report is not None:
        here.printer.lines(lines(report))
