"""How much of what happens is printed by now, and waiting for more.

What happens is heard here only as "there was something": who prints it says how far.
"""

import anyio


class Following:
    """`shown` is the seq of the newest event that is printed."""

    def __init__(self) -> None:
        self.shown = 0
        self._news = anyio.Event()

    def tell(self) -> None:
        """Something has happened, or has been shown."""
        told, self._news = self._news, anyio.Event()
        told.set()

    async def more(self) -> None:
        await self._news.wait()

    async def caught_up(self, seq: int) -> None:
        while self.shown < seq:
            await self.more()
