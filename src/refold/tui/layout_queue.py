"""Lays out large items of the transcript in a worker thread, so that keys are not delayed.

`transcript` requests a layout through the port `Layouts` while a frame is made. `transcript`
decides which items are large, and what is shown until their rows exist.
"""

from collections.abc import Callable, Hashable

import anyio


class LayoutQueue:
    """Performs the requested layouts, one at a time."""

    def __init__(self) -> None:
        self._jobs = dict[Hashable, Callable[[], None]]()
        self._news = anyio.Event()

    def request(self, key: Hashable, lay_out: Callable[[], None]) -> None:
        """Request a layout. If one with the same `key` is already requested, do nothing."""
        if key not in self._jobs:
            self._jobs[key] = lay_out
            self._news.set()

    def is_pending(self, key: Hashable) -> bool:
        return key in self._jobs

    async def run(self, on_done: Callable[[], None]) -> None:
        """Perform the requests until cancelled. `on_done` is called after each."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._jobs:
                key = next(iter(self._jobs))
                await anyio.to_thread.run_sync(self._jobs[key], abandon_on_cancel=True)
                del self._jobs[key]
                on_done()
