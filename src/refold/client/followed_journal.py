"""Follows the journal of a session that another process writes: reads its new entries.

Nothing is written here, and orders are not sent: `remote_session` sends them to the process
that has the session open.
"""

from math import inf

import anyio

from refold.errors import BadInput
from refold.journal.events import codec
from refold.journal.state.fold import View, apply
from refold.journal.store.port import Store
from refold.session.recorder import MakeEvents, Recorder

OPEN_ELSEWHERE = "this session is open in another process: do this there"


class FollowedJournal(Recorder):
    """Follows the journal in `store`, which another process writes.

    `ended` is the reason why following stopped; "" while it continues.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.ended = ""

    async def open(self) -> View:
        return await self.follow()

    async def close(self) -> None:
        """Do nothing: the journal belongs to the process that writes it."""

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, author: str = "agent"
    ) -> bool:
        """Raise `BadInput`: only the process that has the session open writes its journal."""
        raise BadInput(self.ended or OPEN_ELSEWHERE)

    async def follow(self, up_to: float = inf) -> View:
        """Read new entries of the journal, up to event `up_to`, and publish them.

        Return the state after them.
        """
        async with self._lock:
            lines = await self._store.read(self._head.seq)
            for entry, head in codec.decode(lines, self._head):
                if entry.seq > up_to:
                    break
                self.view = apply(self.view, entry)
                self._head = head
                self.hub.publish(entry)
        self._wake()
        return self.view

    async def wait_for_event(self, after: int) -> None:
        """Wait for an event after event `after`. Raises `BadInput` once following has
        stopped.
        """
        while self.view.seq <= after:
            if self.ended:
                raise BadInput(self.ended)
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def end(self, reason: str) -> None:
        """Stop following. If it was stopped before, the first reason stays."""
        self.ended = self.ended or reason
        self._wake()
        self.hub.close()

    def _wake(self) -> None:
        news = self._news
        self._news = None  # `wait_for_event` makes a new one
        if news is not None:
            news.set()
