"""Record events of many concurrent tasks in batches.

Otherwise hundreds of answers that arrive together would wait for the disk one by one.
Each task still decides on a view that contains the events before its own.
"""

from collections.abc import Callable, Sequence

import anyio
from msgspec import Struct

from refold.engine.world import Record
from refold.journal.events.kinds import Entry, Event
from refold.journal.state.fold import View, apply
from refold.tools.contract import ImageData
from refold.values.live import Live
from refold.values.messages import Image, ToolCall

MakeEvents = Callable[[View], Sequence[Event]]


# A larger batch would wake all waiting tasks at once, and they would return together.
_MAX_BATCH = 8


class _Append(Struct, eq=False):
    make_events: MakeEvents
    done: bool = False
    said: bool = False
    failed: Exception | None = None


class BatchRecorder:
    """Implements the engine's `Record`, for one `by`; it never waits for a sync."""

    def __init__(self, record: Record, author: str) -> None:
        self._record, self._author = record, author
        self._waiting: list[_Append] = []
        self._writing = anyio.Lock()

    @property
    def view(self) -> View:
        return self._record.view

    @property
    def since(self) -> int:
        return self._record.since

    async def __call__(self, *events: Event, kept: bool = False, author: str = "") -> View:
        await self.append_if(lambda _: events)
        return self.view

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, author: str = ""
    ) -> bool:
        mine = _Append(make_events)
        self._waiting.append(mine)
        # Shielded, as in a recorder: record paid answers even if the turn is cancelled.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                while not mine.done:
                    await self._write()
        await anyio.lowlevel.checkpoint()
        if mine.failed is not None:
            raise mine.failed
        return mine.said

    async def wait_for_event(self, after: int) -> None:
        await self._record.wait_for_event(after)

    def publish(self, live: Live) -> None:
        self._record.publish(live)

    async def put(self, blob: bytes) -> str:
        return await self._record.put(blob)

    async def put_bytes(self, blob: bytes) -> str:
        return await self._record.put_bytes(blob)

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        return await self._record.put_image(image)

    async def get(self, name: str) -> bytes:
        return await self._record.get(name)

    def unmask(self, call: ToolCall) -> ToolCall | None:
        return self._record.unmask(call)

    async def _write(self) -> None:
        batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
        failed: Exception | None = None
        try:
            await self._record.append_if(
                lambda view: _events_of(batch, view), author=self._author
            )
        except Exception as error:  # a disk error, which each task gets
            failed = error
        finally:
            for wish in batch:
                wish.done, wish.failed = True, failed


def _events_of(batch: Sequence[_Append], view: View) -> Sequence[Event]:
    all_events: list[Event] = []
    for wish in batch:
        events = wish.make_events(view)
        wish.said = bool(events)
        all_events += events
        if wish is not batch[-1]:
            for event in events:
                view = apply(view, Entry(view.seq + 1, event, at=view.turn.now))
    return all_events
