"""/clear: start a new session."""

from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    session = await here.around.new_session()
    await here.change(session, "A new session. The previous one is kept.")
