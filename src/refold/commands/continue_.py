"""/continue: continue without a new message."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    if not here.session.view.conversation.messages:
        raise BadInput("There are no messages yet, so there is nothing to continue.")
    await here.continue_()
