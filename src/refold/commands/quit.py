"""/quit: leave; the session stays saved."""

from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    here.quit()
