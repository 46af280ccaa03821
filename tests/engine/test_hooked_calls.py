"""Hooks at the seam and at the points of a turn, without programs: a port that answers."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.policies.hooked_turn import hook_policies
from refold.engine.run_hooks import with_hooks
from refold.engine.world import World
from refold.hooks.answers import HookAnswer
from refold.hooks.configuration import Hook, matching_hooks
from refold.journal.events.child_events import HookRan
from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Entry,
    Event,
    Imported,
    Judged,
    ModelAsked,
    SessionResumed,
    SessionStarted,
)
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Decision
from refold.testing.providers import Line, ScriptedProvider
from refold.values.messages import Text
from refold.values.modes import HookEvent, Verdict
from tests.engine.house import BOOK, POLICIES, entries, open_session, run, world

Says = Callable[[Hook, Mapping[str, object]], HookAnswer]


class Port:
    """Implements `world.Hooks` by a function; `heard` has the documents of all runs."""

    def __init__(self, says: Says, *on: HookEvent) -> None:
        self.hooks = [Hook(event, command=f"h{n}") for n, event in enumerate(on)]
        self._says, self.heard = says, list[tuple[str, Mapping[str, object]]]()

    def hooks_for(self, event: HookEvent, *names: str) -> Sequence[Hook]:
        return matching_hooks(self.hooks, event, *names)

    async def run(self, hook: Hook, about: Mapping[str, object]) -> HookAnswer:
        self.heard.append((hook.name, about))
        return self._says(hook, about)


def world_with_hooks(port: Port, *lines: Line, **fields: object) -> World:
    policies = (*POLICIES, *hook_policies(port.hooks_for, child=False))
    scripted_world = world(ScriptedProvider(*lines), **fields)
    return replace(scripted_world, policies=policies, hooks=port)


def call_ends(store: MemoryStore) -> list[tuple[str, str]]:
    events = (e.event for e in entries(store) if isinstance(e.event, Ended))
    return [(item.outcome, item.text) for item in events]


class Crash(BaseException):
    """Raised where the process dies."""


def test_hook_that_finished_before_a_crash_does_not_run_again_after_resume() -> None:
    def crash(hook: Hook, about: Mapping[str, object]) -> HookAnswer:
        if hook.name == "h1":
            raise Crash
        return HookAnswer(context="first")

    store, orders = MemoryStore(), list[str]()
    before = Port(crash, "PreToolUse", "PreToolUse")
    with pytest.raises(Crash):
        run(store, world_with_hooks(before, [BOOK], orders=orders), "Taxi, please.")

    after = Port(lambda hook, about: HookAnswer(), "PreToolUse", "PreToolUse")
    anyio.run(_resume, store, world_with_hooks(after, "Done.", orders=orders))

    assert [name for name, _ in before.heard] == ["h0", "h1"]
    assert [name for name, _ in after.heard] == ["h1"]
    assert orders == ["taxi"]


async def _resume(store: MemoryStore, world: World) -> View:
    async with await open_session(store, world) as session:
        return await session.run_turns()


VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")
STRICT = {"allow": 0, "ask": 1, "deny": 2}


@pytest.mark.parametrize(
    ("verdict", "outcome", "asks"),
    list(product(VERDICTS, ("passed", "blocked", "failed"), (False, True))),
)
def test_no_hook_makes_a_permission_decision_weaker(
    verdict: Verdict, outcome: str, asks: bool
) -> None:
    ran = HookRan("PreToolUse", "h", outcome=outcome, asks=asks)  # pyright: ignore[reportArgumentType]

    hooks = with_hooks(Decision(verdict, "rule"), (ran,))

    assert STRICT[hooks.verdict] >= STRICT[verdict]
    assert outcome != "blocked" or hooks.verdict == "deny"
    assert not asks or hooks.verdict != "allow"


def test_arguments_changed_by_a_hook_are_judged_as_if_the_model_had_sent_them() -> None:
    port = Port(lambda hook, about: HookAnswer(arguments={"what": "boat"}), "PreToolUse")
    store, orders = MemoryStore(), list[str]()

    run(store, world_with_hooks(port, [BOOK], "Done.", orders=orders), "Taxi, please.")

    judged = [e.event for e in entries(store) if isinstance(e.event, Judged)]
    events = [e.event for e in entries(store) if isinstance(e.event, ModelAsked)]
    assert orders == ["boat"]
    assert len(judged) == 1
    assert call_ends(store) == [("done", "boat ordered")]
    assert '{"what": "boat"}' in events[1].notes[0]


def test_secret_in_replaced_arguments_is_not_written_to_the_journal() -> None:
    port = Port(lambda hook, about: HookAnswer(arguments={"what": "boat"}), "PreToolUse")
    store, orders = MemoryStore(), list[str]()

    async def use_session() -> None:
        scripted_world = world_with_hooks(
            port, [("book", '{"what": "taxi-secret"}')], "Done.", orders=orders
        )
        async with await open_session(
            store, scripted_world, secrets=("taxi-secret",)
        ) as session:
            await session.inbox.say("Go.")
            await session.run_turns()

    anyio.run(use_session)

    assert orders == ["boat"]
    assert all(b"taxi-secret" not in line for line in anyio.run(store.read))


def test_secret_added_by_a_hook_reaches_the_tool_unmasked() -> None:
    new = {"what": "boat-secret"}
    port = Port(lambda hook, about: HookAnswer(arguments=new), "PreToolUse")
    store, orders = MemoryStore(), list[str]()

    async def use_session() -> None:
        scripted_world = world_with_hooks(port, [BOOK], "Done.", orders=orders)
        async with await open_session(
            store, scripted_world, secrets=("boat-secret",)
        ) as session:
            await session.inbox.say("Go.")
            await session.run_turns()

    anyio.run(use_session)

    assert orders == ["boat-secret"]
    assert all(b"boat-secret" not in line for line in anyio.run(store.read))


def test_stop_hook_that_always_blocks_is_ended_by_the_step_limit() -> None:
    port = Port(lambda hook, about: HookAnswer("blocked", "more"), "Stop")

    view = run(MemoryStore(), world_with_hooks(port, *["Done."] * 9), "Go.")

    assert view.turn.outcome == "step_limit"
    assert [about["stop_hook_active"] for _, about in port.heard][:2] == [False, True]


def test_message_blocked_by_a_hook_ends_the_turn_with_the_reason() -> None:
    provider = ScriptedProvider("Never.")
    port = Port(lambda hook, about: HookAnswer("blocked", "rude"), "UserPromptSubmit")
    result = replace(world(provider), hooks=port)
    result = replace(
        result, policies=(*POLICIES, *hook_policies(port.hooks_for, child=False))
    )

    view = run(MemoryStore(), result, "Rudely.")

    assert provider.heard == []
    assert (view.turn.outcome, view.turn.reason) == (
        "failed",
        "a hook did not let the message through: rude",
    )
    assert view.conversation.undelivered == ()


def test_context_added_by_hooks_is_in_the_next_request_once() -> None:
    port = Port(
        lambda hook, about: HookAnswer(context=f"from {hook.on}"),
        "SessionStart", "UserPromptSubmit", "PostToolUse",
    )  # fmt: skip
    store = MemoryStore()

    view = run(store, world_with_hooks(port, [BOOK], "Done.", orders=[]), "Go.")

    events = [e.event for e in entries(store) if isinstance(e.event, ModelAsked)]
    texts = [part.text for s in view.conversation.messages for part in s.message.parts
            if isinstance(part, Text) and "A hook" in part.text]  # fmt: skip
    assert len(events) == 2
    assert texts == [
        "<reminder>A hook of the person adds this:\n"
        "from SessionStart\nfrom UserPromptSubmit</reminder>",
        "<reminder>A hook of the person adds this:\nfrom PostToolUse</reminder>",
    ]


def test_hook_can_stop_the_turn() -> None:
    port = Port(lambda hook, about: HookAnswer(reason="late", stop=True), "PostToolUse")

    view = run(MemoryStore(), world_with_hooks(port, [BOOK], "Never.", orders=[]), "Go.")

    assert (view.turn.outcome, view.turn.reason) == (
        "interrupted",
        "the hook `h0` stopped it: late",
    )


@pytest.mark.parametrize(
    ("events", "source"),
    [
        ([SessionStarted("/")], "startup"),
        ([SessionStarted("/"), ModelAsked()], ""),
        ([SessionStarted("/"), ModelAsked(), SessionResumed()], "resume"),
        ([SessionStarted("/"), ModelAsked(), Compacted("full")], "compact"),
        ([SessionStarted("/"), ModelAsked(), Compacted("prune")], ""),
        ([SessionStarted("/"), SessionResumed(), Imported("s")], ""),
    ],
)
def test_session_start_hooks_are_due_until_the_first_model_call(
    events: list[Event], source: str
) -> None:
    view = fold(Entry(seq, event) for seq, event in enumerate(events, start=1))

    assert view.hook_runs.began[0] == source
