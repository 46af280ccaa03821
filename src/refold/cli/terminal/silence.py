"""What is done while nobody types: notes are made of what was said, as when it is left."""

from collections.abc import Callable
from contextlib import suppress

import anyio

from refold.cli.terminal.surroundings import Surroundings
from refold.errors import RefoldError
from refold.session.session import Session


async def learning(
    around: Surroundings, session: Callable[[], Session], busy: Callable[[], bool]
) -> None:
    """After each long silence, until this is cancelled. `session` is the one of then."""
    while around.learn_idle is not None:
        seen = session().view.seq
        await anyio.sleep(around.idle)
        now = session()
        if not busy() and now.idle and now.view.seq == seen:
            with suppress(RefoldError):  # the next silence, or the end, tries again
                await around.learn_idle(now)
