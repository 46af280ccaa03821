"""Stops, messages, decisions and cancellation during a turn."""

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager

import anyio
import pytest

from refold.engine.policies.turn_end import CUT_SHORT
from refold.engine.world import World
from refold.errors import BadInput, JournalError
from refold.journal.events.kinds import (
    Entry,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Started,
    TurnEnded,
)
from refold.journal.state.fold import fold
from refold.journal.store.port import Blobs, Lease, MemoryStore, Views
from refold.permissions.rules import parse
from refold.provider.port import Delta, Request
from refold.session.session import Session
from refold.testing.providers import FaultyProvider, ScriptedProvider, check_history
from refold.tools.contract import Reply, Tool, tool
from refold.values.messages import Text
from refold.values.tools import Effect
from refold.views.activity import activity_of
from tests.engine.house import BOOK, OPEN_HAND, WEATHER, entries, open_session, run, world
from tests.engine.worlds import render_conversation

ANY = (parse("*", "allow"),)


def endless(busy: anyio.Event) -> Tool:
    @tool(Effect.RUN)
    async def wait(what: str, *, progress: Callable[[str], None]) -> Reply:
        """Never come back."""
        progress("half way\n")
        busy.set()
        await anyio.sleep_forever()
        raise AssertionError

    return wait


def test_interrupt_while_a_tool_runs_ends_the_call_and_then_the_turn() -> None:
    store = MemoryStore()

    async def stop_it() -> str:
        busy = anyio.Event()
        provider = ScriptedProvider([("wait", '{"what": "for ever"}')])
        session = await open_session(
            store, world(provider, tools=(endless(busy),), rules=ANY)
        )
        await session.inbox.say("Wait.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await busy.wait()
            await session.inbox.interrupt("the person left")
        return render_conversation(session.view)

    assert anyio.run(stop_it).splitlines()[-3:] == [
        "· failed: Interrupted while running. Check what it had already done.",
        "The last it printed:",
        "half way",
    ]
    assert entries(store)[-1].event == TurnEnded("interrupted", "the person left")


def test_message_sent_with_an_interrupt_starts_the_next_turn() -> None:
    async def redirect() -> tuple[str, tuple[str, ...]]:
        busy = anyio.Event()
        provider = ScriptedProvider([("wait", '{"what": "for ever"}')], "Right.")
        scripted_world = world(provider, tools=(endless(busy),), rules=ANY)
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Wait.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await busy.wait()
            await session.inbox.interrupt(instead="Do not wait.")
        messages = provider.heard[-1].messages
        notes = [
            p.text for s in messages[-2:] for p in s.message.parts if isinstance(p, Text)
        ]
        return render_conversation(session.view), tuple(notes)

    text, texts = anyio.run(redirect)

    assert text.splitlines()[-1] == "‹ Right."
    assert texts == ("Do not wait.", CUT_SHORT)


def test_cancelling_a_turn_gives_the_outcome_cancelled_and_not_interrupted() -> None:
    async def cancel() -> str:
        busy = anyio.Event()
        provider = ScriptedProvider([("wait", '{"what": "for ever"}')])
        scripted_world = world(provider, tools=(endless(busy),), rules=ANY)
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Wait.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await busy.wait()
            await session.inbox.cancel()
        return session.view.turn.outcome

    assert anyio.run(cancel) == "cancelled"


def test_second_concurrent_run_is_refused() -> None:
    async def run_twice() -> str:
        busy = anyio.Event()
        provider = ScriptedProvider([("wait", '{"what": "for ever"}')])
        scripted_world = world(provider, tools=(endless(busy),), rules=ANY)
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Wait.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await busy.wait()
            with pytest.raises(BadInput) as caught:
                await session.run_turns()
            await session.inbox.interrupt()
        return str(caught.value)

    assert anyio.run(run_twice) == (
        "a turn of this session is running already: wait, or stop it"
    )


def test_message_sent_while_a_tool_runs_reaches_the_model_at_the_next_step() -> None:
    async def steer() -> str:
        session: list[Session] = []

        @tool(Effect.LOOK)
        async def weather(city: str) -> Reply:
            """The user sends a message while this runs."""
            await session[0].inbox.say("And Bergen?")
            await session[0].inbox.say("Later.", when="next")
            return Reply("rain")

        provider = ScriptedProvider([WEATHER], "Rain in both.", "Bye.")
        session.append(await open_session(MemoryStore(), world(provider, tools=(weather,))))
        await session[0].inbox.say("Oslo?")
        return render_conversation(await session[0].run_turns())

    assert anyio.run(steer).splitlines()[2:] == [
        "· rain", "› And Bergen?", "‹ Rain in both.", "› Later.", "‹ Bye.",
    ]  # fmt: skip


class ActsAt:
    """Acts on the session after the n-th delta."""

    def __init__(self, moment: int, *lines: str | Sequence[tuple[str, str]]) -> None:
        self._inner, self.left = ScriptedProvider(*lines), moment
        self.act: Callable[[], object] | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in self._inner.stream(request):
            yield delta
            self.left -= 1
            if self.left == 0 and self.act:
                await self.act()  # type: ignore[misc]


def test_message_sent_while_the_last_answer_streams_is_answered_in_the_same_turn() -> None:
    async def steer() -> str:
        provider = ActsAt(3, "Rain.", "Snow.")
        session = await open_session(MemoryStore(), world(provider))
        provider.act = lambda: session.inbox.say("And Bergen?")
        await session.inbox.say("Oslo?")
        return render_conversation(await session.run_turns())

    assert anyio.run(steer) == "› Oslo?\n‹ Rain.\n› And Bergen?\n‹ Snow."


def test_text_streamed_before_an_interrupt_is_kept_without_its_calls() -> None:
    store = MemoryStore()

    async def cut_off_answer() -> str:
        provider = ActsAt(6, "A long answer")
        session = await open_session(store, world(provider))
        provider.act = lambda: session.inbox.interrupt("enough")
        await session.inbox.say("Tell.")
        return render_conversation(await session.run_turns())

    assert anyio.run(cut_off_answer) == "› Tell.\n‹ A long"
    assert [e.event.partial for e in entries(store) if isinstance(e.event, ModelAnswered)]


SCRIPT = ([WEATHER, BOOK], "Take an umbrella.")
DELTAS = sum(2 + len(arguments) for _, arguments in SCRIPT[0]) + len(SCRIPT[1]) + 1


@pytest.mark.parametrize("text", ["steer", "stop", "redirect"])
@pytest.mark.parametrize("moment", range(1, DELTAS, 4))
def test_turn_ends_with_a_valid_history_after_an_event_at_any_delta(
    text: str, moment: int
) -> None:
    async def interfere() -> tuple[str, list[Entry]]:
        store = MemoryStore()
        provider = ActsAt(moment, *SCRIPT, "Well.", "Well then.")
        session = await open_session(store, world(provider))
        acts: dict[str, Callable[[], object]] = {
            "steer": lambda: session.inbox.say("Also Bergen."),
            "stop": lambda: session.inbox.interrupt("enough"),
            "redirect": lambda: session.inbox.interrupt(instead="Only Bergen."),
        }
        provider.act = acts[text]
        await session.inbox.say("Umbrella?")
        view = await session.run_turns()
        check_history(spoken.message for spoken in view.conversation.messages)
        return view.turn.outcome, entries(store)

    outcome, result = anyio.run(interfere)

    assert outcome == ("interrupted" if text == "stop" else "answered")
    assert isinstance(result[-1].event, TurnEnded)
    assert not fold(result).conversation.undelivered


class Counted:
    """Cancels a turn when the store has been used `n` times."""

    def __init__(self, breaks_at: int, fails: bool = False) -> None:
        self.store, self.left, self.fails = MemoryStore(), breaks_at, fails
        self.scope: anyio.CancelScope

    @property
    def blobs(self) -> Blobs:
        return self.store.blobs

    @property
    def views(self) -> Views:
        return self.store.views

    async def read_claim(self) -> int:
        return await self.store.read_claim()

    async def lease(self, claim: int = 0) -> Lease:
        return await self.store.lease(claim)

    async def release(self) -> None:
        await self.store.release()

    async def append(
        self, lines: list[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        await self._tick()
        await self.store.append(lines, expect=expect, epoch=epoch, head=head)
        await self._tick()

    async def keep(self) -> None:
        await self._tick()
        await self.store.keep()

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return await self.store.read(after)

    async def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.fails:
                raise JournalError("the disk is full")
            self.scope.cancel()
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("moment", range(1, 30))
def test_turn_cancelled_at_any_moment_has_a_valid_history_and_can_be_finished(
    moment: int,
) -> None:
    counted, orders = Counted(moment), list[str]()

    async def broken_off(world: World) -> None:
        with anyio.CancelScope() as counted.scope:
            session = await open_session(counted, world)
            await session.inbox.say("Umbrella?")
            await session.run_turns()

    anyio.run(broken_off, world(ScriptedProvider(*SCRIPT), orders))
    before = fold(entries(counted.store))
    steps = 2 if before.turn.outcome else before.turn.steps
    words = () if before.session.title else ("Umbrella?",)
    view = run(counted.store, world(ScriptedProvider(*SCRIPT[steps:]), orders), *words)

    check_history(spoken.message for spoken in view.conversation.messages)
    assert view.turn.outcome == "answered"
    assert orders in ([], ["taxi"])


@contextmanager
def suppress_full_disk() -> Generator[None]:
    """Yield the one error that is expected, and nothing else."""
    try:
        yield
    except JournalError as error:
        if str(error) != "the disk is full":
            raise


@pytest.mark.parametrize("moment", range(1, 30))
def test_session_continues_after_a_disk_error(
    moment: int,
) -> None:
    """The process and the session object stay the same, and no call is repeated."""
    counted, orders = Counted(moment, fails=True), list[str]()
    provider = ScriptedProvider(*SCRIPT, SCRIPT[1], SCRIPT[1])

    async def tries(session: Session) -> None:
        for _ in range(2):
            with suppress_full_disk():
                if not session.view.session.title:
                    await session.inbox.say("Umbrella?")
                await session.run_turns()

    async def fails() -> None:
        try:
            session = await open_session(counted, world(provider, orders))
        except JournalError:
            session = await open_session(counted, world(provider, orders))
        await tries(session)
        check_history(spoken.message for spoken in session.view.conversation.messages)
        assert session.view.turn.outcome == "answered"
        assert session.view == fold(entries(counted.store))

    anyio.run(fails)

    assert orders in ([], ["taxi"])
    started = [e for e in entries(counted.store) if e.event == Started("call-1")]
    assert len(started) <= 1


def test_bypass_mode_of_the_session_does_not_override_a_deny_rule() -> None:
    orders: list[str] = []

    async def grant() -> str:
        rules = (parse("book", "deny"),)
        session = await open_session(
            MemoryStore(), world(ScriptedProvider([BOOK], "No."), orders, rules=rules)
        )
        await session.inbox.set_mode("bypass")
        await session.inbox.say("Taxi!")
        return render_conversation(await session.run_turns())

    assert "the rule book says deny" in anyio.run(grant)
    assert orders == []
    assert OPEN_HAND


def test_model_call_cut_off_by_a_crash_is_charged_and_recorded_as_ended() -> None:
    left = list[bytes]()
    store = MemoryStore()

    async def crash() -> None:
        provider = FaultyProvider("Rain.", fault="hang", times=99)
        session = await open_session(store, world(provider))
        await session.inbox.say("Umbrella?")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            while session.view.turn.open_request is None:
                await session.record.wait_for_event(after=session.view.seq)
            left.extend(store.lines)
            group.cancel_scope.cancel()

    anyio.run(crash)
    again = MemoryStore(*left)
    view = run(again, world(ScriptedProvider("Rain.")))

    first, second = activity_of(entries(again)).steps
    reserved = next(e.event for e in entries(again) if isinstance(e.event, ModelAsked))
    assert isinstance(first.end, ModelFailed)
    assert first.end.reason.startswith("refold exited before the response came")
    assert second.end is not None
    assert reserved.tokens > 0
    assert view.account.spent.usage.uncached == reserved.tokens + 10 + len("Rain.")
    assert view.account.spent.usage.estimated
