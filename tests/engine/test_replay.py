"""A replayed session takes the same course, unless something has changed."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.engine.decide import Policy
from refold.engine.policies.step_limit import at_most
from refold.engine.policies.turn_end import stopping
from refold.engine.world import World
from refold.errors import ProviderError
from refold.journal.events import codec
from refold.journal.events.kinds import Compacted, Entry
from refold.journal.fork import fork
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.port import MemoryStore
from refold.permissions.rules import parse
from refold.session.recorder import Recorder
from refold.session.replay import Replay
from refold.session.replay_difference import Divergence, Replayed
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.contract import Reply, Tool, tool
from refold.values.tools import Effect
from tests.engine.house import (
    BOOK,
    OPEN_HAND,
    POLICIES,
    WEATHER,
    book,
    entries,
    kinds,
    open_session,
    run,
    weather,
    world,
)
from tests.engine.test_compaction import world as long_world
from tests.engine.test_compaction_laws import LIVES, Life, Wild, run_life
from tests.engine.test_laws import LINES
from tests.engine.worlds import world_with

UNHURRIED = [HealthCheck.too_slow]


async def no_blob(name: str) -> bytes:
    raise AssertionError(name)


def replay_entries(
    entries: Sequence[Entry], scripted_world: World, *, again: bool = False
) -> Replayed:
    replay = Replay(lambda _: scripted_world, no_blob, again=again)
    return anyio.run(replay.run, entries)


def first(replayed: Replayed) -> tuple[int, int, str, str, object, object]:
    one: Divergence = replayed.divergences[0]
    return one.seq, one.step, one.event, one.field, one.then, one.now


def check_a_life(life: Life) -> None:
    store, model = MemoryStore(), Wild(life.answers, life.summary)
    scripted_world = long_world(
        model, 12, life.shares, window=life.window, longest_result=life.window
    )  # type: ignore[arg-type]
    anyio.run(run_life, store, scripted_world, model, life.steps)

    result = replay_entries(entries(store), scripted_world)

    assert (result.divergences, result.briefings) == ((), ())


@settings(deadline=None, max_examples=10, suppress_health_check=UNHURRIED)
@given(LIVES)
def test_unchanged_code_replays_without_divergence(life: Life) -> None:
    check_a_life(life)


@pytest.mark.slow
@settings(deadline=None, max_examples=80, suppress_health_check=UNHURRIED)
@given(LIVES)
def test_unchanged_code_replays_without_divergence_in_many_random_sessions(
    life: Life,
) -> None:
    check_a_life(life)


@settings(max_examples=20)
@given(some.lists(LINES, max_size=7), some.booleans(), some.booleans())
def test_any_model_output_replays_without_divergence(
    script: list[Line], may_book: bool, attended: bool
) -> None:
    store, rules = MemoryStore(), OPEN_HAND if may_book else ()
    scripted_world = world(ScriptedProvider(*script), rules=rules, attended=attended)
    run(store, scripted_world, "Well?")

    result = replay_entries(entries(store), scripted_world)

    assert result.divergences == ()
    assert result.steps == kinds(store).split().count("ModelAnswered")


def run_script(*script: Line, **options: object) -> list[Entry]:
    store = MemoryStore()
    run(store, world(ScriptedProvider(*script), **options), "Well?")
    return entries(store)


LOOKS: tuple[Line, ...] = ([WEATHER], [("weather", '{"city": "Rome"}')], "Done.")


def test_replay_asks_no_model_and_runs_no_tool() -> None:
    orders: list[str] = []
    result = run_script([BOOK, WEATHER], "Done.")
    provider = ScriptedProvider()

    assert replay_entries(result, world(provider, orders)).divergences == ()

    assert (provider.heard, orders) == ([], [])


def test_changed_step_limit_is_reported_with_step_field_and_both_values() -> None:
    shorter = tuple(
        at_most(2, warn=0) if p.__name__ == "step_limit" else p for p in POLICIES
    )

    result = replay_entries(run_script(*LOOKS), world(ScriptedProvider(), policies=shorter))

    _, step, event, field, then, now = first(result)
    assert (step, event, field, then) == (3, "ModelAsked", "notes", [])
    assert "step limit" in str(now)
    assert (
        len(result.divergences) <= 3
    )  # each is reported once; the next step is right again


def test_changed_permission_rules_are_reported_with_the_verdict() -> None:
    rules = (parse("book", "deny"),)

    result = replay_entries(
        run_script([BOOK], "Done."), world(ScriptedProvider(), rules=rules)
    )

    assert first(result) == (8, 1, "Judged", "verdict", "allow", "deny")


def test_changed_policy_order_is_reported_with_the_policy() -> None:
    def stop_early(view: object) -> object:
        return stopping(view)  # type: ignore[arg-type]

    policies: tuple[Policy, ...] = (stop_early, *POLICIES)  # type: ignore[arg-type, assignment]
    store = MemoryStore()

    async def stop_session() -> None:
        session = await open_session(store, world(ScriptedProvider([BOOK]), rules=()))
        await session.inbox.say("Book.")
        await session.run_turns()  # it waits for a person
        await session.inbox.interrupt()
        await session.run_turns()

    anyio.run(stop_session)
    same = replay_entries(entries(store), world(ScriptedProvider(), rules=()))
    result = replay_entries(
        entries(store), world(ScriptedProvider(), rules=(), policies=policies)
    )

    assert same.divergences == ()
    assert first(result)[2:] == ("Ended", "by", "stopping", "stop_early")
    assert [d.event for d in result.divergences] == ["Ended", "TurnEnded"]


def test_replay_with_other_prices_has_no_divergence() -> None:
    dear = replay_entries(
        run_script(*LOOKS), world(ScriptedProvider(), price=lambda *_: 2.0)
    )

    assert dear.divergences == ()  # prices are none of the loop's doing


def test_removed_tool_is_reported_as_a_divergence() -> None:
    result = replay_entries(
        run_script([BOOK], "Done."), world(ScriptedProvider(), tools=(weather,))
    )

    seq, step, event, field, then, now = first(result)
    assert (seq, step, event, field, then) == (8, 1, "Judged", "kind", "Judged")
    assert "There is no tool 'book'" in str(now)
    assert result.briefings == ((4, "removed tools: book"),)


def test_replay_can_run_read_only_calls_again() -> None:
    orders: list[str] = []

    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Say what the weather is."""
        return Reply(f"sun in {city}")

    result = run_script([BOOK, WEATHER], "Done.")
    sun: tuple[Tool, ...] = (weather, book)

    assert (
        replay_entries(result, world(ScriptedProvider(), orders), again=True).divergences
        == ()
    )
    other = replay_entries(result, world(ScriptedProvider(), orders, tools=sun), again=True)
    recorded = replay_entries(result, world(ScriptedProvider(), orders, tools=sun))

    assert first(other)[2:] == ("Ended", "text", "rain in Oslo", "sun in Oslo")
    assert (recorded.divergences, orders) == ((), [])


def test_replay_does_not_run_code_again_that_asks_models() -> None:
    @tool(Effect.LOOK)
    async def weather(city: str, *, repl: object) -> Reply:
        """Say what code finds out of the weather."""
        return Reply(f"{repl} in {city}")

    def build_world(repl: str) -> World:
        both: tuple[Tool, ...] = (weather, book)
        return replace(
            world(ScriptedProvider([WEATHER], "Done."), tools=both),
            tool_dependencies={"repl": repl},
        )

    store = MemoryStore()
    run(store, build_world("rain"), "How is it?")

    assert replay_entries(entries(store), build_world("sun"), again=True).divergences == ()


def test_session_with_a_crash_replays_without_divergence() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider([BOOK], "Done."))
    run(store, scripted_world, "Well?")
    for cut in range(3, len(store.lines)):
        again = MemoryStore(*store.lines[:cut])
        run(again, world(ScriptedProvider("I looked.", "Done.")), "And now?")

        assert replay_entries(entries(again), scripted_world).divergences == (), kinds(
            again
        )


def test_failed_model_call_replays_without_divergence() -> None:
    result = run_script(ProviderError("down"))

    assert replay_entries(result, world(ScriptedProvider())).divergences == ()


def test_changed_summary_size_is_reported_as_a_divergence() -> None:
    store, model = MemoryStore(), Wild(("word " * 90,), "It went well. " * 9)  # type: ignore[arg-type]
    scripted_world = long_world(model, 12, window=1_000)  # type: ignore[arg-type]

    async def use_session() -> None:
        session = model.session = await open_session(store, scripted_world)
        for n in range(8):
            await session.inbox.say(f"Tell me of {n}. " + "y" * 300)
            await session.run_turns()

    anyio.run(use_session)
    wider = replace(scripted_world, shares=replace(scripted_world.shares, results=0))
    assert "Compacted" in kinds(store)
    assert replay_entries(entries(store), scripted_world).divergences == ()

    changed = [
        replace(e, event=replace(e.event, size_after=e.event.size_after + 1))
        if isinstance(e.event, Compacted)
        else e
        for e in entries(store)
    ]
    assert first(replay_entries(changed, wider))[2:4] == ("Compacted", "size_after")


def test_forked_session_replays_without_divergence(tmp_path: Path) -> None:
    home, scripted_world = (
        JournalDirectory(tmp_path),
        world(ScriptedProvider([BOOK, WEATHER], "Done.")),
    )

    async def live(name: str, text: str, one: World) -> list[Entry]:
        record = Recorder(home.store(name), clock=lambda: 0.0)
        async with await Session.open(record, lambda _: one) as session:
            await session.inbox.say(text)
            await session.run_turns()
        return [e for e, _ in codec.decode(await home.store(name).read())]

    whole = anyio.run(live, "a", "Well?", scripted_world)
    for seq in range(3, len(whole), 2):
        outcome = fork(home, "a", seq, 0.0)
        result = anyio.run(
            live, outcome.id, "And?", world(ScriptedProvider("I look.", "Now."))
        )

        assert replay_entries(result, scripted_world).divergences == ()


SHOWN: dict[str, Callable[[World], World]] = {
    "system text: 0 characters, now 3": lambda w: world_with(w, system="Hi."),
    "window: none, now 9": lambda w: world_with(w, window=9),
    "added tools: weather": lambda w: w,
}


@pytest.mark.parametrize("sentence", SHOWN)
def test_replay_lists_changes_of_the_request_as_briefings_not_divergences(
    sentence: str,
) -> None:
    result = run_script("Done.", tools=(book,))
    scripted_world = SHOWN[sentence](world(ScriptedProvider()))

    other = replay_entries(result, scripted_world)

    assert other.divergences == ()
    assert sentence in [words for _, words in other.briefings]
