"""Shift+Tab: pressed where nothing can be awaited, heard where it can."""

from collections.abc import Callable

import anyio

from refold.cli.terminal.commands.rights import after
from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.work import sentence
from refold.engine.judging import mode_of
from refold.errors import RefoldError


class Cycle:
    def __init__(self) -> None:
        self._pressed, self._news = 0, anyio.Event()

    def press(self) -> None:
        self._pressed += 1
        self._news.set()

    async def changing(self, here: Conversation, redraw: Callable[[], None]) -> None:
        """Take up the next mode each time that it is pressed."""
        while True:
            await self._once()
            now = mode_of(here.around, here.session.view)
            try:
                await here.session.inbox.set_mode(after(now))
            except RefoldError as error:
                here.paper.line(sentence(error))
            redraw()

    async def _once(self) -> None:
        while not self._pressed:
            self._news = anyio.Event()
            await self._news.wait()
        self._pressed -= 1
