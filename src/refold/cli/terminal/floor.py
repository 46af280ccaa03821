"""Who may speak with the person now: one at a time, be it a printer or a question.

Printing takes `printing` for a moment. A question takes the keyboard too: then
nobody else reads from it, or two readers would share one terminal and each get
half of what is typed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint_if_cancelled


class Floor:
    """`keyboard` gives what is typed while nobody asks anything."""

    def __init__(self, keyboard: Callable[[], Awaitable[str]]) -> None:
        self.printing = anyio.Lock()
        self.asking = False
        self._typed = keyboard
        self._keyboard = anyio.Lock()
        self._listening: anyio.CancelScope | None = None
        self._wish = anyio.Event()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Have it for a question: nothing else is printed or read."""
        async with self.printing:
            self.asking = True
            self._stop_listening()
            try:
                async with self._keyboard:
                    yield
            finally:
                self.asking = False

    @property
    def wanted(self) -> bool:
        """Has somebody pressed Ctrl+C, and not been asked what they want?"""
        return self._wish.is_set()

    def want(self) -> None:
        self._wish.set()
        self._stop_listening()

    def heard(self) -> None:
        self._wish = anyio.Event()

    async def typed(self) -> str:
        """What is typed while nobody asks anything; "" if a Ctrl+C came."""
        while not self.wanted:
            async with self._keyboard:
                if self.asking:  # it waits for the keyboard, and was here first
                    continue
                with anyio.CancelScope() as self._listening:
                    await checkpoint_if_cancelled()  # a line may be there already
                    return await self._typed()
        return ""

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
