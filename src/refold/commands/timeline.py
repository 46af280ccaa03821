"""/timeline: show every call of the session with its time and cost."""

from refold.commands.command_context import CommandContext
from refold.commands.history import number_in
from refold.views.styled import line
from refold.views.timeline import slowest, timeline_lines

_EMPTY_TEXT = "There are no calls in this session yet."
_MIN_ROW_CELLS = 60  # that a row needs to be useful


async def run(context: CommandContext, arguments: str) -> None:
    """Show all calls, or only the N slowest if a number N is given."""
    slow_count = number_in(arguments, "/timeline")  # 0: all calls
    calls = await context.session.reports.timeline()
    shown = slowest(calls, slow_count) if slow_count else calls
    width = max(context.look.width, _MIN_ROW_CELLS)
    rows = list(timeline_lines(shown, width))
    if not rows:
        context.show(line(_EMPTY_TEXT))
        return
    await context.show_long(rows)
