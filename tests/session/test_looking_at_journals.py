"""A recorder folds a journal without its lock, and takes the lock with its first event."""

from collections.abc import Sequence

import pytest

from refold.journal.events.kinds import Event, Noted, SessionStarted
from refold.journal.events.setting_events import Renamed
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.session.recorder import Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def resume_events(view: View) -> Sequence[Event]:
    return (Noted("resumed", b"null"),)


async def write_events(store: MemoryStore, *events: Event) -> None:
    record = Recorder(store.another_writer())
    await record(*events)
    await record.close()


async def kinds(record: Recorder) -> list[str]:
    return [type(entry.event).__name__ for entry in await record.entries()]


async def open_and_look() -> tuple[MemoryStore, Recorder]:
    store = MemoryStore()
    await write_events(store, SessionStarted("/", id="s"))
    record = Recorder(store.another_writer())
    record.record_first(resume_events)
    await record.fold_without_lock()
    return store, record


async def test_look_folds_the_journal_without_lock_or_write() -> None:
    store, record = await open_and_look()

    assert (record.view.session.id, record.has_lease, len(store.lines)) == ("s", False, 1)


async def test_follow_publishes_events_of_other_writers() -> None:
    store, record = await open_and_look()
    texts = list[str]()
    record.hub.subscribe(lambda entry: texts.append(type(entry.event).__name__))
    await write_events(store, Renamed("one"))
    await record.follow()

    assert (texts, record.view.session.name) == (["Renamed"], "one")
    assert not record.has_lease


async def test_the_first_recorded_event_follows_events_of_others_and_an_opening_event() -> (
    None
):
    store, record = await open_and_look()
    texts = list[str]()
    record.hub.subscribe(lambda entry: texts.append(type(entry.event).__name__))
    await write_events(store, Renamed("one"))
    await record(Renamed("two"))

    assert await kinds(record) == ["SessionStarted", "Renamed", "Noted", "Renamed"]
    assert texts == ["Renamed", "Noted", "Renamed"]
    assert (record.view.session.name, record.has_lease, record.since) == ("two", True, 2)


async def test_append_if_without_events_takes_no_lock() -> None:
    store, record = await open_and_look()
    await write_events(store, Renamed("one"))

    assert not await record.append_if(
        lambda view: () if view.session.name == "one" else (Renamed("one"),)
    )
    assert not record.has_lease


async def test_recording_after_close_adds_no_second_opening_event() -> None:
    _, record = await open_and_look()
    await record(Renamed("one"))
    await record.close()
    await record(Renamed("two"))

    assert await kinds(record) == ["SessionStarted", "Noted", "Renamed", "Renamed"]


async def test_recording_after_another_writer_adds_a_new_opening_event() -> None:
    store, record = await open_and_look()
    await record(Renamed("one"))
    await record.close()
    await write_events(store, Renamed("two"))
    await record(Renamed("three"))

    assert (await kinds(record))[1:] == ["Noted", "Renamed", "Renamed", "Noted", "Renamed"]
