"""Watchers get an event when it is written, and an acknowledgement when it is kept."""

import anyio
import pytest

from refold.errors import JournalError
from refold.journal.events.kinds import Ended, Entry, Said, TurnEnded
from refold.journal.store.port import MemoryStore
from refold.session.hub import Subscription
from refold.session.recorder import Recorder
from refold.values.live import TextCame

TURN = TurnEnded("answered")


class SlowDisk(MemoryStore):
    """Syncs nothing before `done` is set; with `fails` the sync fails."""

    def __init__(self) -> None:
        super().__init__()
        self.keeping, self.done, self.fails = anyio.Event(), anyio.Event(), False

    async def keep(self) -> None:
        self.keeping.set()
        await self.done.wait()
        if self.fails:
            self.fails = False
            raise JournalError("the disk is broken")


async def read_waiting(watch: Subscription) -> list[object]:
    """Return what the watcher was sent and has not taken yet."""
    frames = watch.frames()
    published = [await anext(frames) for _ in range(watch.waiting)]
    return [f.item.event if isinstance(f.item, Entry) else f.item for f in published]


def test_an_acknowledgement_is_published_after_its_sync_to_disk() -> None:
    async def run_story() -> None:
        disk = SlowDisk()
        record = Recorder(disk)
        await record(Said("one"))
        watch, published_events, joined = (
            record.hub.watch(),
            list[object](),
            list[Subscription](),
        )
        record.hub.subscribe(lambda entry: published_events.append(entry.event))
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: record(TURN, kept=True))
            await disk.keeping.wait()
            joined.append(record.hub.watch())
            await record(Said("two"))  # it is written, and waits for the entries before it
            record.publish(TextCame("three"))
            assert (watch.waiting, joined[0].waiting) == (0, 0)
            assert (watch.outstanding, joined[0].outstanding) == (3, 2)
            assert published_events == [
                TURN,
                Said("two"),
            ]  # the session itself gets it at once
            assert record.view.turn.outcome == "answered"
            disk.done.set()
        assert await read_waiting(watch) == [TURN, Said("two"), TextCame("three")]
        assert await read_waiting(joined[0]) == [Said("two"), TextCame("three")]
        await record(Said("four"))
        assert watch.waiting == 1

    anyio.run(run_story)


def test_events_that_are_no_acknowledgement_are_published_when_written() -> None:
    async def run_story() -> None:
        record = Recorder(SlowDisk())
        watch = record.hub.watch()
        await record(Ended("c", "done", "wet"))
        assert watch.waiting == 1

    anyio.run(run_story)


def test_without_durability_acknowledgements_are_published_before_the_sync() -> None:
    async def run_story() -> None:
        record = Recorder(SlowDisk(), durable=False)
        watch = record.hub.watch()
        await record(TURN, kept=True)
        assert watch.waiting == 1

    anyio.run(run_story)


def test_an_acknowledgement_with_a_failed_sync_is_published_after_the_next_sync() -> None:
    async def run_story() -> None:
        disk = SlowDisk()
        record = Recorder(disk)
        await record(Said("one"))
        watch = record.hub.watch()
        disk.fails = True
        disk.done.set()
        with pytest.raises(JournalError):
            await record(TURN, kept=True)
        assert watch.waiting == 0

        await record(Said("two"))

        assert await read_waiting(watch) == [TURN, Said("two")]

    anyio.run(run_story)
