"""Records the events of many concurrent tasks in batches.

Otherwise hundreds of answers that arrive together would wait for the disk one by one. Each task
decides on its events after it has seen all events before them.
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


# A larger batch would wake all waiting tasks at once, and they would return at the same
# time.
_MAX_BATCH = 8


class _Append(Struct, eq=False):
    make_events: MakeEvents
    done: bool = False
    has_events: bool = False
    error: Exception | None = None


class BatchRecorder:
    """A recorder (the engine's `Record`) that writes events of one author in batches.

    It never waits for the disk to sync.
    """

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
        """Record the events that `make_events` returns for the view, together with others.

        Return whether `make_events` has returned any. The events are recorded even if the
        caller is cancelled.
        """
        append = _Append(make_events)
        self._waiting.append(append)
        # Shielded, as in a recorder: a paid answer is recorded even if the turn is
        # cancelled.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                while not append.done:
                    await self._write()
        await anyio.lowlevel.checkpoint()
        if append.error is not None:
            raise append.error
        return append.has_events

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
        """Record the events of the waiting tasks, or store the error for each waiting task."""
        batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
        batch_error: Exception | None = None
        try:
            await self._record.append_if(
                lambda view: _events_of(batch, view), author=self._author
            )
        except Exception as error:  # a disk error, which is passed to each task
            batch_error = error
        finally:
            for append in batch:
                append.done, append.error = True, batch_error


def _events_of(batch: Sequence[_Append], view: View) -> Sequence[Event]:
    """Return the events of all tasks in a batch.

    Each task decides on a view that contains the events of the tasks before it.
    """
    all_events: list[Event] = []
    for append in batch:
        events = append.make_events(view)
        append.has_events = bool(events)
        all_events += events
        if append is not batch[-1]:
            for event in events:
                view = apply(view, Entry(view.seq + 1, event, at=view.turn.now))
    return all_events
