"""What is done while nobody types: notes are made of what was said, as when it is left."""

from collections.abc import Callable
from contextlib import suppress

import anyio

from refold.cli.terminal.conversing import Conversation
from refold.errors import RefoldError


async def learning(here: Conversation, busy: Callable[[], bool]) -> None:
    """After each long silence, until this is cancelled."""
    while True:
        seen = here.session.view.seq
        await anyio.sleep(here.around.idle)
        now, learn = here.session, here.around.learn_idle
        if learn is not None and not busy() and now.idle and now.view.seq == seen:
            with suppress(RefoldError):  # the next silence, or the end, tries again
                await learn(now)
