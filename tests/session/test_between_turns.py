"""What is done between two turns, and what must not be done within one."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.turn_context import GONE_TEXT
from refold.config.load import load
from refold.config.paths import paths
from refold.engine.policies.conversation import converse
from refold.engine.world import Model, World
from refold.errors import BadInput
from refold.journal.events.kinds import (
    Delivered,
    Entry,
    Said,
    SessionResumed,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import AgentChosen
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.background import MAX_WAKES
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.prompts.summary import summary_prompt
from refold.provider.port import Delta, Request
from refold.session.recorder import Recorder
from refold.session.rewind import rewind_points
from refold.session.session import Session, SessionOptions, turn_start
from refold.testing.providers import ScriptedProvider


class Slow:
    """Writes the summary when the test releases it."""

    def __init__(self) -> None:
        self.asked, self.let_go = anyio.Event(), anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        assert request.system == summary_prompt()
        self.asked.set()
        await self.let_go.wait()
        async for delta in ScriptedProvider("It was said.").stream(request):
            yield delta


async def open_session(*messages: str, small_model: Model | None = None) -> Session:
    provider = ScriptedProvider(*messages)
    world = World(
        Model(provider),
        policies=(converse,),
        helper_model=(lambda: small_model) if small_model else None,
    )
    return await Session.open(Recorder(MemoryStore()), lambda _: world)


def test_a_turn_that_is_left_between_two_steps_continues_later() -> None:
    async def leave_and_continue() -> tuple[View, View]:
        session = await open_session("Done.")
        await session.inbox.say("Hi.")
        session.leaves_turn = lambda: bool(session.view.turn.seq)
        left = await session.run_turns()
        session.leaves_turn = lambda: False
        return left, await session.run_turns()

    left, view = anyio.run(leave_and_continue)

    assert (bool(left.turn.seq), left.account.spent.answers) == (True, 0)
    assert (view.turn.seq, view.turn.answer) == (0, "Done.")


def test_a_turn_starts_only_after_a_running_compaction() -> None:
    async def run_story() -> tuple[bool, View]:
        slow = Slow()
        session = await open_session(
            "One. " * 40, "Two.", "Three.", small_model=Model(slow)
        )
        for words in ("a", "b"):
            await session.inbox.say(words)
            await session.run_turns()
        async with anyio.create_task_group() as group:
            group.start_soon(session.compact)
            await slow.asked.wait()
            running = session.running
            await session.inbox.say("c")
            group.start_soon(session.run_turns)
            await anyio.wait_all_tasks_blocked()
            slow.let_go.set()
        return running, session.view

    running, view = anyio.run(run_story)

    assert not running
    assert view.turn.answer == "Three."
    assert "It was said." in view.conversation.messages[0].message.text


def test_the_agent_is_not_changed_while_a_turn_runs() -> None:
    async def run_story() -> None:
        session = await open_session()
        await session.inbox.say("Go.")
        await session.record(TurnStarted(session.view.seq))
        with pytest.raises(BadInput, match="while a turn runs"):
            await session.inbox.choose_agent("review")

    anyio.run(run_story)


def test_start_and_resume_events_record_whether_memory_is_off() -> None:
    async def began(*remember: bool) -> list[bool]:
        store = MemoryStore()
        for item in remember:
            record = Recorder(store)
            session_options = SessionOptions(remember=item)
            async with await Session.open(
                record,
                lambda _: World(Model(ScriptedProvider())),
                session_options=session_options,
            ):
                pass
        record = Recorder(store)
        await record.open()
        events = [entry.event for entry in await record.entries()]
        kinds = SessionStarted | SessionResumed
        return [event.no_memory for event in events if isinstance(event, kinds)]

    assert anyio.run(began, True, False, True) == [False, True, False]


def test_a_session_without_messages_has_no_rewind_points() -> None:
    assert rewind_points(View(), None) == ()


def test_a_session_without_messages_is_not_the_newest_of_its_directory(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path / "sessions")

    async def begin(id_: str, text: str) -> None:
        world = World(Model(ScriptedProvider("Hi.")), policies=(converse,))
        record = Recorder(home.store(id_))
        async with await Session.open(
            record, lambda _: world, directory=str(tmp_path)
        ) as session:
            if text:
                await session.inbox.say(text)
                await session.run_turns()

    first = home.new_id(1.0)
    anyio.run(begin, first, "Hello.")
    anyio.run(begin, home.new_id(2.0), "")

    newest = home.newest_of(tmp_path)

    assert newest is not None
    assert newest.id == first


def test_the_newest_session_has_no_messages_only_if_none_has_any(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path / "sessions")

    async def begin(id_: str) -> None:
        record = Recorder(home.store(id_))
        async with await Session.open(
            record, lambda _: World(Model(ScriptedProvider())), directory=str(tmp_path)
        ):
            pass

    silent = home.new_id(1.0)
    anyio.run(begin, silent)

    newest = home.newest_of(tmp_path)

    assert newest is not None
    assert newest.id == silent


def test_a_removed_agent_is_replaced_by_main_with_a_notice(
    tmp_path: Path,
) -> None:
    environ = {"REFOLD_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    provider = ScriptedProvider("Hi.")

    async def run_story() -> tuple[str, tuple[str, ...]]:
        places = paths(environ)
        settings = load(places.settings, environ, {}).settings
        app = App(
            settings, places, environ, LaunchOptions(directory=tmp_path, provider=provider)
        )
        _, session = await app.start()
        async with session:
            await session.record(AgentChosen("wizard"))
            await session.inbox.say("Hello.")
            view = await session.run_turns()
            notices = app.notices()
        await app.aclose()
        return view.conversation.system_prompt.agent, notices

    agent, notices = anyio.run(run_story)

    assert agent == "main"
    assert GONE_TEXT.format(agent="wizard") in notices


def test_a_late_report_of_a_subagent_starts_no_turn() -> None:
    before_end = [
        Said("Go."),
        TurnStarted(1),
        Delivered((1,)),
        Said("Found it.", "child-1"),
    ]
    events = [*before_end, TurnEnded("budget", "over")]
    report = [Entry(seq, event) for seq, event in enumerate(events, start=1)]
    person = [*report, Entry(6, Said("And now?"))]

    assert turn_start(fold(report)) is None
    assert turn_start(fold(person)) == TurnStarted(6)


def test_an_interrupt_finds_nothing_to_stop_once_the_wakes_exceed_their_limit() -> None:
    async def main(wakes: int) -> bool:
        async with await open_session() as session:
            await session.record(*[Said("ready", "background-1", wakes=True)] * wakes)
            return await session.inbox.interrupt()

    assert anyio.run(main, MAX_WAKES)
    assert not anyio.run(main, MAX_WAKES + 1)
