"""Run a turn: decide, do, again. All that is known is in the view.

Nothing is added here. What changes the next step is a policy, what wraps a
call is in the seam, what only watches is a watcher of the hub.
"""

from collections.abc import Callable

import anyio

from refold.engine.decide import decide
from refold.engine.perform import perform
from refold.engine.world import Record, World


async def run_turn(
    world: World, record: Record, on_step: Callable[[anyio.CancelScope], None]
) -> None:
    """Go on until there is nothing to do: the turn is over, or a person is asked.

    Each step has a scope of its own, shown to `on_step`: a stop is recorded
    first, then the scope is cancelled, and the next decision heeds the stop.
    """
    while (choice := decide(record.view, world.policies)) is not None:
        with anyio.CancelScope() as step:
            on_step(step)
            await perform(choice, world, record)
