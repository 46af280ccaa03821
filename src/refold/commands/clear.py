"""/clear: start a new session."""

from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    await here.new_session()
    here.printer.say("A new session. The previous one is kept.", "dim")
