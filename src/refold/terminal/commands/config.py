"""/config: show the settings, and where each comes from."""

from refold.terminal.terminal import Terminal
from refold.views.escape import visible


async def run(here: Terminal, rest: str) -> None:
    """All settings, or those of some keys or tables."""
    for row in await here.session.config.lines(rest.split()):
        here.printer.say(visible(row))
