"""Passes what a server sends during a call from the servers' thread to the session that called.

A channel carries progress lines, and questions with a function that returns the answer.
`server_requests` fills channels, and `connections` reads them. This module does not import the
SDK: if two threads imported the SDK at the same time, modules would be half-initialized.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeAlias

from msgspec import Struct


class Elicitation(Struct, frozen=True):
    """A question of a server to the user. Call `answer` with the answer once, in any thread.

    If the question asks the user to open a page, the server may report later that the user has
    finished the page: this sets `page_finished`. With `wait_for_page`, the answer is sent only
    after the page is finished; otherwise it is sent when the page is opened.
    """

    server: str
    params: Any
    answer: Callable[[Any], None]
    page_finished: Event | None = None
    wait_for_page: bool = False


class Sampling(Struct, frozen=True):
    """A request of a server for a model call. Call `answer` with the result once."""

    server: str
    params: Any
    answer: Callable[[Any], None]


News: TypeAlias = str | Elicitation | Sampling | None  # None is the end of the call


class Channel:
    """A queue of what a server sends during one call, from one thread to another."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[News] = SimpleQueue()

    def put(self, news: News) -> None:
        self._queue.put(news)

    async def put_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Put a progress line like "3 of 4: reading" into the queue.

        A task reports no numbers (`progress` is 0), so its line is the message alone.
        """
        if total:
            numbers = f"{progress:g} of {total:g}"
        elif progress or not message:
            numbers = f"{progress:g}"
        else:
            numbers = ""
        parts = [part for part in (numbers, message) if part]
        self.put(": ".join(parts) + "\n")

    def get(self) -> News:
        """Return the next item, or None at the end of the call.

        Blocks the thread until there is an item.
        """
        return self._queue.get()
