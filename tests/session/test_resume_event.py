"""A session is resumed with an event only where the fold or a reader needs one."""

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.world import Model, World
from refold.journal.events.child_events import BackgroundStarted
from refold.journal.events.kinds import (
    Entry,
    Event,
    Granted,
    Said,
    SessionResumed,
    SessionStarted,
    TurnStarted,
)
from refold.journal.events.setting_events import ModeChanged
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store.port import MemoryStore
from refold.session.recorder import Recorder
from refold.session.session import Opening, Session, SessionOptions
from refold.testing.providers import ScriptedProvider
from refold.values.usage import RunLimits

STARTED = SessionStarted("/w", "1", "id", roots=("/more",))
OPENING = Opening(SessionDirectories("/w", ("/more",)), "1")
OPTIONS = SessionOptions()


async def resume(
    store: MemoryStore,
    opening: Opening = OPENING,
    session_options: SessionOptions = OPTIONS,
) -> list[Entry]:
    """Return what is recorded when another process opens the session."""
    record = Recorder(store.another_writer())
    session = Session(record, lambda _: World(Model(ScriptedProvider())), session_options)
    session.prepare(opening)
    before = (await record.fold_without_lock()).seq
    await record.open()
    entries = await record.entries(before)
    await session.close()
    return list(entries)


async def store_events(*events: Event) -> MemoryStore:
    store = MemoryStore()
    record = Recorder(store)
    await record(*events)
    await record.close()
    return store


def kinds(entries: list[Entry]) -> list[type]:
    return [type(entry.event) for entry in entries]


def test_resuming_with_the_same_settings_records_no_event() -> None:
    async def run_story() -> list[Entry]:
        store = await store_events(STARTED, Said("Hi."), ModeChanged("plan"))
        return [*await resume(store), *await resume(store)]

    assert anyio.run(run_story) == []


@pytest.mark.parametrize(
    "event",
    [
        TurnStarted(1),
        Granted("bash(ls)"),
        ModeChanged("bypass"),
        BackgroundStarted("background-1", "sleep 9"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_resume_that_ends_unfinished_work_is_recorded_first(event: Event) -> None:
    async def run_story() -> list[Entry]:
        return await resume(await store_events(STARTED, event))

    assert kinds(anyio.run(run_story))[0] is SessionResumed


@pytest.mark.parametrize(
    ("opening", "session_options"),
    [
        (replace(OPENING, version="2"), OPTIONS),
        (replace(OPENING, place=SessionDirectories("/other", ("/more",))), OPTIONS),
        (replace(OPENING, place=SessionDirectories("/w")), OPTIONS),
        (replace(OPENING, resume_hooks=True), OPTIONS),
        (OPENING, SessionOptions(remember=False)),
        (OPENING, SessionOptions(given=RunLimits(steps=3))),
    ],
    ids=["version", "directory", "roots", "hooks", "no_memory", "limits"],
)
def test_resuming_with_changed_settings_is_recorded_once(
    opening: Opening, session_options: SessionOptions
) -> None:
    async def run_story() -> list[list[type]]:
        store = await store_events(STARTED)
        results = [
            await resume(store, opening, session_options),
            await resume(store, replace(opening, resume_hooks=False), session_options),
        ]
        return [kinds(result) for result in results]

    first, second = anyio.run(run_story)

    assert first == [SessionResumed]
    # The version is recorded again, so that its change is reported once.
    assert second == ([SessionResumed] if opening.version == "2" else [])


def test_resuming_a_scheduled_run_is_recorded() -> None:
    """A resumed run is a session of the user."""

    async def run_story() -> list[Entry]:
        return await resume(await store_events(replace(STARTED, schedule=4)))

    assert kinds(anyio.run(run_story)) == [SessionResumed]


def test_resuming_in_plan_mode_after_bypass_is_recorded_once() -> None:
    async def run_story() -> list[Entry]:
        store = await store_events(STARTED, ModeChanged("bypass"), ModeChanged("plan"))
        return [*await resume(store), *await resume(store)]

    assert kinds(anyio.run(run_story)) == [SessionResumed]
