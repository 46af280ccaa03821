"""Several things that are at work beside one turn, as one."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from refold.engine.world import Beside


def together(*every: Beside) -> Beside:
    """Begun in their order, ended in the opposite one."""

    @asynccontextmanager
    async def beside() -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for each in every:
                await stack.enter_async_context(each())
            yield

    return beside
