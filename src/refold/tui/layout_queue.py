"""Lays out large items of the transcript in a worker thread, so that keys are answered meanwhile.

`transcript` requests a layout while a frame is made, through the port `Layouts`. It decides which
items are large, and what is shown of them until their rows are there.
"""

from collections.abc import Callable, Hashable

import anyio


class LayoutQueue:
    """One item is laid out at a time, each once until it is requested again."""

    def __init__(self) -> None:
        self._jobs = dict[Hashable, Callable[[], None]]()
        self._news = anyio.Event()

    def request(self, key: Hashable, lay_out: Callable[[], None]) -> None:
        """Request a layout, unless this one was requested and has not ended."""
        if key not in self._jobs:
            self._jobs[key] = lay_out
            self._news.set()

    def is_pending(self, key: Hashable) -> bool:
        return key in self._jobs

    async def run(self, on_done: Callable[[], None]) -> None:
        """Lay out what is requested, until cancelled; `on_done` is called after each."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._jobs:
                key = next(iter(self._jobs))
                await anyio.to_thread.run_sync(self._jobs[key], abandon_on_cancel=True)
                del self._jobs[key]
                on_done()
