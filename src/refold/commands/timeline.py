"""/timeline: every call of the session with its time and cost."""

from refold.commands.history import number_in
from refold.console.pager import show
from refold.terminal.terminal import Terminal
from refold.views.timeline import slowest, timeline_lines

_EMPTY = "There are no calls in this session yet."
_NARROW = 60  # cells that a row needs to be useful


async def run(here: Terminal, rest: str) -> None:
    """All calls; with N, only the N slowest."""
    slow = number_in(rest, "/timeline")
    calls = await here.session.reports.timeline()
    room = max(here.printer.room, _NARROW)
    rows = list(timeline_lines(slowest(calls, slow) if slow else calls, room))
    if not rows:
        here.printer.say(_EMPTY)
        return
    await show(rows, here.printer)
