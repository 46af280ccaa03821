"""The end of a turn at its step limit: the warning and the summary, with their settings."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal

import anyio
import pytest

from refold.engine.policies.conversation import converse
from refold.engine.policies.step_limit import SUMMARY_REQUEST, WRAP_UP, at_most
from refold.engine.policies.turn_end import continue_cut_response
from refold.errors import BadInput, ProviderError
from refold.journal.events.kinds import ModelAsked, TurnEnded
from refold.journal.store.port import MemoryStore
from refold.provider.port import Delta, Request
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedProvider
from refold.testing.providers import Reply as Said
from tests.engine.house import entries, open_session, run, world


def make_look_calls(count: int) -> list[Line]:
    return [[("weather", f'{{"city": "{n}"}}')] for n in range(count)]


WARNED = WRAP_UP.format(left=2)


@pytest.mark.parametrize(
    ("warn", "summary", "notes"),
    [
        (2, True, [WARNED, SUMMARY_REQUEST]),
        (0, True, [SUMMARY_REQUEST]),
        (2, False, [WARNED]),
        (0, False, []),
    ],
)
def test_warning_and_summary_of_the_step_limit_can_be_switched_off(
    warn: int, summary: bool, notes: list[str]
) -> None:
    store, provider = MemoryStore(), ScriptedProvider(*make_look_calls(4), "So far.")
    policies = (at_most(4, warn, summary=summary), converse)

    view = run(store, world(provider, policies=policies), "Go.")

    events = [e.event for e in entries(store) if isinstance(e.event, ModelAsked)]
    assert [note for event in events for note in event.notes] == notes
    assert (view.turn.outcome, view.turn.steps) == ("step_limit", 5 if summary else 4)
    assert view.turn.reason == "4 responses were allowed; continue the session for more"


@pytest.mark.parametrize("last", [make_look_calls(1)[0], ""])
def test_call_or_empty_answer_instead_of_the_summary_ends_at_the_step_limit(
    last: Line,
) -> None:
    provider = ScriptedProvider(*make_look_calls(4), last)
    policies = (at_most(4), converse)

    view = run(MemoryStore(), world(provider, policies=policies), "Go.")

    assert (view.turn.outcome, view.turn.steps) == ("step_limit", 4)
    assert view.turn.reason == "4 responses were allowed; continue the session for more"


def test_failed_summary_request_at_the_step_limit_fails_the_turn() -> None:
    provider = ScriptedProvider(*make_look_calls(4), ProviderError("no network"))

    view = run(MemoryStore(), world(provider, policies=(at_most(4), converse)), "Go.")

    assert (view.turn.outcome, view.turn.reason) == ("failed", "no network")


@pytest.mark.parametrize("summary", [True, False])
def test_last_allowed_response_may_be_the_final_answer(summary: bool) -> None:
    provider = ScriptedProvider(*make_look_calls(3), "Rain.")
    policies = (at_most(4, summary=summary), converse)

    view = run(MemoryStore(), world(provider, policies=policies), "Go.")

    assert (view.turn.outcome, view.turn.answer) == ("answered", "Rain.")


def test_answer_cut_off_at_the_step_limit_is_not_a_final_answer() -> None:
    provider = ScriptedProvider(*make_look_calls(1), Said("Rai", stop="length"))
    policies = (at_most(2, summary=False), continue_cut_response(), converse)

    view = run(MemoryStore(), world(provider, policies=policies), "Go.")

    assert (view.turn.outcome, view.turn.steps) == ("step_limit", 2)
    assert len(provider.heard) == 2


class Interrupted:
    """The user sends a message during the first answer of this model."""

    def __init__(self, speak: Callable[[], Awaitable[object]]) -> None:
        self.script, self.speak = ScriptedProvider("One.", "Two."), speak

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if not self.script.heard:
            await self.speak()
        async for delta in self.script.stream(request):
            yield delta


@pytest.mark.parametrize(
    ("when", "outcomes"),
    [("now", ["step_limit", "answered"]), ("next", ["answered", "answered"])],
)
def test_message_sent_during_the_last_allowed_response_begins_the_next_turn(
    when: Literal["now", "next"], outcomes: list[str]
) -> None:
    store, sessions = MemoryStore(), list[Session]()

    async def speak() -> None:
        await sessions[0].inbox.say("And two?", when=when)

    async def main() -> None:
        policies = (at_most(1, summary=False), converse)
        sessions.append(
            await open_session(store, world(Interrupted(speak), policies=policies))
        )
        await sessions[0].inbox.say("One?")
        await sessions[0].run_turns()

    anyio.run(main)

    ends = [e.event.outcome for e in entries(store) if isinstance(e.event, TurnEnded)]
    assert ends == outcomes


def test_step_limit_of_the_session_overrides_the_policy() -> None:
    provider = ScriptedProvider(
        *make_look_calls(2), "So far.", *make_look_calls(4), "So far."
    )
    policies = (at_most(4), converse)
    store = MemoryStore()

    async def turns() -> list[str]:
        async with await open_session(store, world(provider, policies=policies)) as session:
            texts = list[str]()
            for steps in (2, 0):
                assert await session.inbox.set_steps(steps)
                assert not await session.inbox.set_steps(steps)
                await session.inbox.say("Go.")
                texts.append((await session.run_turns()).turn.reason)
            with pytest.raises(BadInput, match="a turn cannot have -1 answers"):
                await session.inbox.set_steps(-1)
            return texts

    assert anyio.run(turns) == [
        "2 responses were allowed; continue the session for more",
        "4 responses were allowed; continue the session for more",
    ]
