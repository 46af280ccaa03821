"""A record for many who write at the same moment: what they say goes down as one batch.

Hundreds of models that answer at once would else wait for the disk one after the other.
Each still says what it says of a view in which those before it have spoken.
"""

from collections.abc import Callable, Sequence

import anyio
from msgspec import Struct

from refold.engine.world import Record
from refold.journal.events import Entry, Event
from refold.journal.fold import View, apply
from refold.values.live import Live
from refold.values.messages import ToolCall

News = Callable[[View], Sequence[Event]]


# More would make all who wait go on at the same moment, and so come back at the same one.
_AT_ONCE = 8


class _Wish(Struct, eq=False):
    news: News
    done: bool = False
    said: bool = False
    failed: Exception | None = None


class Joined:
    """Implements the engine's `Record`, for one `by`; nothing of it is `kept` at once."""

    def __init__(self, record: Record, by: str) -> None:
        self._record, self._by = record, by
        self._waiting: list[_Wish] = []
        self._writing = anyio.Lock()

    @property
    def view(self) -> View:
        return self._record.view

    @property
    def since(self) -> int:
        return self._record.since

    async def __call__(self, *events: Event, kept: bool = False, by: str = "") -> View:
        await self.weigh(lambda _: events)
        return self.view

    async def weigh(self, news: News, *, kept: bool = False, by: str = "") -> bool:
        mine = _Wish(news)
        self._waiting.append(mine)
        # Shielded, as a record is: what was paid for is told, even while all is stopped.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                while not mine.done:
                    await self._write()
        await anyio.lowlevel.checkpoint()
        if mine.failed is not None:
            raise mine.failed
        return mine.said

    async def news(self, after: int) -> None:
        await self._record.news(after)

    def tell(self, live: Live) -> None:
        self._record.tell(live)

    async def put(self, blob: bytes) -> str:
        return await self._record.put(blob)

    async def put_bytes(self, blob: bytes) -> str:
        return await self._record.put_bytes(blob)

    async def get(self, name: str) -> bytes:
        return await self._record.get(name)

    def unmasked(self, call: ToolCall) -> ToolCall | None:
        return self._record.unmasked(call)

    async def _write(self) -> None:
        batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        failed: Exception | None = None
        try:
            await self._record.weigh(lambda view: _said(batch, view), by=self._by)
        except Exception as error:  # of the disk: each of them has to hear of it
            failed = error
        finally:
            for wish in batch:
                wish.done, wish.failed = True, failed


def _said(batch: Sequence[_Wish], view: View) -> Sequence[Event]:
    found: list[Event] = []
    for wish in batch:
        events = wish.news(view)
        wish.said = bool(events)
        found += events
        if wish is not batch[-1]:
            for event in events:
                view = apply(view, Entry(view.seq + 1, event, at=view.turn.now))
    return found
