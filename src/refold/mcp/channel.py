"""Passes news from the servers' thread to the session whose call is running.

Progress and questions of a server go through the channel of a call; a function returns the
answer to a question. Nothing of the SDK is imported: the servers' thread imports it, and
two threads that do so at once get half-initialized modules. `server_requests` fills
channels, and `connections` reads them.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeAlias

from msgspec import Struct


class Elicitation(Struct, frozen=True):
    """A question of a server. `answer` may be called from any thread, once.

    `page_done` is set when the server says that its page is done. With `finish`, the server
    is answered when the page is done, not when it is opened.
    """

    server: str
    params: Any
    answer: Callable[[Any], None]
    page_done: Event | None = None
    finish: bool = False


class Sampling(Struct, frozen=True):
    """A model call that a server asks for. `answer` as in `Elicitation`."""

    server: str
    params: Any
    answer: Callable[[Any], None]


News: TypeAlias = str | Elicitation | Sampling | None  # progress, a question, or the end


class Channel:
    """News of a running call for the session, from one thread to another."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[News] = SimpleQueue()

    def put(self, news: News) -> None:
        self._queue.put(news)

    async def put_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Put a line like "3 of 4: reading"; a task has only the message."""
        share = (
            f"{progress:g} of {total:g}" if total else f"{progress:g}" if progress else ""
        )
        self.put(f"{': '.join(filter(None, (share, message))) or '0'}\n")

    def get(self) -> News:
        """Wait for the next news; return None after the last. Call it in a thread."""
        return self._queue.get()
