"""/quit: leave; the session is kept."""

from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    here.quit()
