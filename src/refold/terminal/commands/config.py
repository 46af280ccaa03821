"""/config: show the settings, and where each comes from.
/format: show or set how the conversation is sent to a CLI backend.
"""

from refold.errors import BadInput
from refold.terminal.commands.table import FORMATS
from refold.terminal.terminal import Terminal
from refold.views.escape import visible


async def run(here: Terminal, rest: str) -> None:
    """All settings, or those of some keys or tables."""
    for row in await here.session.config.lines(rest.split()):
        here.printer.say(visible(row))


async def run_format(here: Terminal, rest: str) -> None:
    if rest:
        if rest not in FORMATS:
            raise BadInput(f"{rest!r} is not a format: {', '.join(FORMATS)}")
        here.session.config.remember("backend.format", rest)
        here.printer.say(f"The default of new sessions: {rest}", "dim")
        return
    for row in await here.session.config.lines(("backend.format",)):
        here.printer.say(visible(row))
