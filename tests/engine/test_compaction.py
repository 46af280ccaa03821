"""A conversation that fills its window is compacted, and nothing that matters is lost."""

from collections.abc import AsyncGenerator
from itertools import pairwise

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.policies.compaction import compact_when_full, in_window
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.plan_mode import in_plan_mode, plan_ready
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.turn_end import after_a_stop, continue_cut_response, stopping
from refold.engine.preserved import PRESERVED_START
from refold.engine.prune import CompactionShares
from refold.engine.world import Model, World
from refold.errors import ProviderError, TooLong
from refold.journal.events.kinds import Compacted, Ended, PlanAnswered, TurnEnded
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.provider.port import Delta, Done, Request
from refold.session.full_history import History
from refold.session.session import Session
from refold.testing.providers import Reply
from refold.tools.contract import Reply as Said
from refold.tools.contract import tool
from refold.tools.session_history import history_search
from refold.tools.todo import todo_write
from refold.tools.turn_control import compact
from refold.values.control import PlanReady
from refold.values.tools import Effect
from tests.engine.house import OPEN_HAND, entries, open_session
from tests.engine.long_talks import LongModel, size, words
from tests.engine.worlds import world_with

WINDOW, SHARES = 8_000, CompactionShares()
PLAN, EARLY = "1. Look at each. 2. Write the report.", (3, 22, 64)
CONSTRAINT = "Never touch billing.py; write everything in British English."
TODOS = (
    '{"todos": [{"subject": "read all", "status": "in_progress"},'
    ' {"subject": "write the report"}]}'
)


@tool(Effect.LOOK)
async def look(n: int, length: int) -> Said:
    """Look at something."""
    return Said(f"detail-{n} is {n * 7919}. " + f"line of {n} " * (length // 10))


@tool(Effect.RUN)
async def ask_first(n: int) -> Said:
    """Do something."""
    return Said("done")


def world(
    model: LongModel, steps: int = 100, shares: CompactionShares = SHARES, **fields: object
) -> World:
    shorter = compact_when_full(shares)
    policies = (
        stopping, in_window(shorter), shorter, plan_ready, final, at_most(steps),
        continue_cut_response(3), going_on, after_a_stop, in_plan_mode("default"), converse,
    )  # fmt: skip
    small_world = World(
        Model(model, window=WINDOW), (look, todo_write, compact, history_search), policies,
        OPEN_HAND, shares=shares, longest_result=WINDOW,
    )  # fmt: skip
    return world_with(small_world, **fields)


async def run_history(store: MemoryStore, world: World) -> Session:
    session = await open_session(store, world)
    house = {**world.tool_dependencies, "history": History(session.record)}
    session._world_for = lambda _: replace(world, tool_dependencies=house)  # type: ignore[assignment]
    return session


class Hanging:
    """Never answers."""

    def __init__(self, inner: LongModel) -> None:
        self.asked = anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked.set()
        await anyio.sleep_forever()
        yield Done()


def look_reply(n: int, length: int = 1500) -> Reply:
    return Reply(f"I look at {n}.", (("look", f'{{"n": {n}, "length": {length}}}'),))


def run_conversation(store: MemoryStore, world: World, *messages: str) -> View:
    async def main() -> View:
        session = await run_history(store, world)
        for text in messages:
            await session.inbox.say(text)
            await session.run_turns()
        return session.view

    return anyio.run(main)


def compactions(store: MemoryStore) -> list[Compacted]:
    return [e.event for e in entries(store) if isinstance(e.event, Compacted)]


def long_session(steps: int, letters: float) -> LongModel:
    def answer(n: int) -> Reply:
        if n == 1:
            return Reply(calls=(("todo_write", TODOS),))
        if n == steps - 2:
            asks = tuple(f'{{"query": "detail-{early} is"}}' for early in EARLY)
            return Reply(calls=tuple(("history_search", ask) for ask in asks))
        if n == steps - 1:
            return Reply("Done.")
        if n % 10 == 5:  # several at once, large ones too
            calls = tuple(
                ("look", f'{{"n": {n + m}, "length": {9000 * m + 100}}}') for m in range(3)
            )
            return Reply(calls=calls)
        return look_reply(n, 200 + n * 37 % 3000)

    def summary(request: Request) -> Reply:
        return Reply(f"So far {len(words(request))} characters were seen.")

    return LongModel(answer, summary, letters)


def check_a_long_session(steps: int, letters: float) -> None:
    """`letters` are in a token, as the model counts."""
    model, store = long_session(steps, letters), MemoryStore()

    async def main() -> View:
        session = await run_history(store, world(model, steps))
        record = await session.record(Ended("c", "done", "", control=PlanReady("P", PLAN)))
        await session.record(PlanAnswered(record.seq, True))
        await session.inbox.say(CONSTRAINT)
        return await session.run_turns()

    view = anyio.run(main)

    assert view.turn.outcome == "answered"
    assert len(model.asked) == steps
    assert max(size(request, letters) for request in model.asked) <= WINDOW
    assert max(size(request, letters) for request in model.summed) <= WINDOW
    assert all(CONSTRAINT in words(request) for request in model.asked)
    assert all(_has_todos(request) for request in model.asked[2:])
    shortened = [words(r) for r in model.asked if words(r).startswith(PRESERVED_START)]
    assert shortened
    assert [text for text in shortened if PLAN not in text] == []
    request_text = words(model.asked[-1])
    assert [n for n in EARLY if f"detail-{n} is {n * 7919}." not in request_text] == []
    assert view == fold(entries(store))


def _has_todos(request: Request) -> bool:
    """The todos, as the model wrote them or as the journal preserves them."""
    wrote = any(c.name == "todo_write" for s in request.messages for c in s.message.calls)
    return wrote or "- [pending] write the report" in words(request)


@pytest.mark.parametrize("letters", [4.0, 3.0])
def test_session_of_many_steps_never_exceeds_its_window(letters: float) -> None:
    check_a_long_session(120, letters)


@pytest.mark.slow
def test_session_of_two_thousand_steps_never_exceeds_its_window() -> None:
    check_a_long_session(2_000, 4.0)


def test_old_results_are_pruned_before_anything_is_summarized() -> None:
    model, store = (
        LongModel(lambda n: look_reply(n) if n < 12 else Reply("Done.")),
        MemoryStore(),
    )

    run_conversation(store, world(model), "Look at all.")

    first = compactions(store)[0]
    assert (first.kind, first.summary) == ("prune", "")
    assert first.size_before - first.size_after >= 0.2 * WINDOW * 4
    assert all(line.startswith("[left out: ") for _, line in first.pruned)
    assert f'look; history_search with call "{first.pruned[0][0]}"' in first.pruned[0][1]


def test_request_only_grows_at_its_end_between_two_prunings() -> None:
    model, store = (
        LongModel(lambda n: look_reply(n) if n < 30 else Reply("Done.")),
        MemoryStore(),
    )

    run_conversation(store, world(model), "Look at all.")

    breaks = sum(
        not words(after).startswith(words(before))
        for before, after in pairwise(model.asked)
    )
    assert breaks == len(compactions(store)) > 1
    assert breaks <= 8  # in batches: a window holds twenty of these results


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        (ProviderError("the model is down"), "the model is down"),
        (Reply("  "), "the summary was empty"),
        (Reply("word " * 9_000), "the summary was longer than what it stands for"),
    ],
)
def test_oldest_messages_are_dropped_with_a_notice_when_summaries_fail(
    summary: Reply | ProviderError, reason: str
) -> None:
    model = LongModel(
        lambda n: look_reply(n) if n < 40 else Reply("Done."), lambda _: summary
    )
    store = MemoryStore()

    view = run_conversation(
        store, world(model, shares=CompactionShares(prune=1)), CONSTRAINT
    )

    (trimmed, *_) = [c for c in compactions(store) if c.kind != "prune"]
    assert view.turn.outcome == "answered"
    assert (trimmed.kind, trimmed.summary) == ("trim", "")
    assert reason in trimmed.reason
    assert trimmed.dropped > 0
    assert f"{trimmed.dropped} earlier messages were left out without a summary" in (
        trimmed.preserved
    )
    assert all(CONSTRAINT in words(request) for request in model.asked)
    assert max(map(size, model.asked)) <= WINDOW


def test_message_longer_than_the_window_is_sent_in_part_and_found_by_search() -> None:
    text = f"Begin. {'filler ' * 8_000} {CONSTRAINT}"
    model = LongModel(
        lambda n: (
            Reply(calls=(("history_search", '{"event": 2, "offset": 100}'),))
            if n == 0
            else Reply("Done.")
        )
    )
    store = MemoryStore()

    view = run_conversation(store, world(model), text)

    assert view.turn.outcome == "answered"
    assert max(map(size, model.asked)) <= WINDOW
    assert "[2] Begin." in words(model.asked[0])
    assert CONSTRAINT in words(model.asked[0])
    assert "history_search with event 2" in words(model.asked[0])
    assert "filler filler" in words(model.asked[1])


def test_compaction_waits_for_the_answer_to_an_open_question() -> None:
    model = LongModel(
        lambda n: Reply(calls=((("ask_first"), '{"n": 1}'),)) if not n else Reply("Ok.")
    )
    store = MemoryStore()
    scripted_world = world(model)

    async def main() -> View:
        session = await open_session(
            store, replace(scripted_world, tools=(*scripted_world.tools, ask_first))
        )
        await session.inbox.say("Go.")
        await session.run_turns()
        await session.compact()
        waiting = compactions(store)
        await session.inbox.answer("call-0", allowed=True)
        await session.run_turns()
        assert waiting == []
        return session.view

    view = anyio.run(main)

    assert view.turn.outcome == "answered"
    assert [c.reason for c in compactions(store)] == ["it was asked for"]


def test_conversation_can_be_compacted_three_times_in_a_row() -> None:
    model = LongModel(lambda n: look_reply(n, 100) if n < 6 else Reply("Done."))
    store = MemoryStore()

    async def main() -> View:
        session = await open_session(store, world(model))
        await session.inbox.say(CONSTRAINT)
        await session.run_turns()
        for focus in ("a", "b", "c"):
            assert await session.compact(focus=focus)
        await session.inbox.say("And now?")
        return await session.run_turns()

    view = anyio.run(main)

    assert view.turn.outcome == "answered"
    assert len(compactions(store)) == 3
    assert CONSTRAINT in words(model.asked[-1])
    assert words(model.asked[-1]).count(CONSTRAINT) == 1
    assert "do not lose: a" in words(model.summed[0])


def test_empty_conversation_is_not_compacted() -> None:
    async def main() -> bool:
        session = await open_session(
            MemoryStore(), world(LongModel(lambda _: Reply("Hello.")))
        )
        return await session.compact()

    assert anyio.run(main) is False


def test_model_can_request_a_compaction() -> None:
    asks = Reply(calls=(("compact", '{"focus": "the door code"}'),))
    answers = [*(look_reply(n, 100) for n in range(6)), asks, Reply("Done.")]
    model, store = LongModel(lambda n: answers[n]), MemoryStore()

    view = run_conversation(store, world(model), "Look.")

    assert view.turn.outcome == "answered"
    assert [c.kind for c in compactions(store)] == ["full"]
    assert "do not lose: the door code" in words(model.summed[0])
    assert "All went well." in words(model.asked[-1])


def test_request_refused_as_too_long_is_compacted_and_sent_again() -> None:
    looks: list[Reply | ProviderError] = [look_reply(n, 100) for n in range(6)]
    looks += [TooLong("only 2,000 tokens fit"), Reply("Done.")]
    model, store = LongModel(lambda n: looks[n]), MemoryStore()

    view = run_conversation(store, world(model), "Look.")

    assert view.turn.outcome == "answered"
    (result,) = compactions(store)
    assert result.reason == "the request was refused: only 2,000 tokens fit"


def test_second_refusal_as_too_long_ends_the_turn() -> None:
    looks: list[Reply | ProviderError] = [look_reply(n, 100) for n in range(6)]
    model = LongModel(lambda n: looks[n] if n < 6 else TooLong("it never fits"))
    store = MemoryStore()

    view = run_conversation(store, world(model), "Look.")

    assert (view.turn.outcome, view.turn.reason) == ("failed", "it never fits")
    assert len(model.asked) == 8


def test_rewind_to_before_a_compaction_restores_all_messages() -> None:
    model, store = (
        LongModel(lambda n: look_reply(n, 100) if n < 6 else Reply("Done.")),
        MemoryStore(),
    )

    async def main() -> tuple[View, View]:
        session = await open_session(store, world(model))
        await session.inbox.say("Look.")
        before = await session.run_turns()
        await session.inbox.say("Again.")
        mark = session.view.seq
        await session.compact()
        await session.run_turns()
        await session.rewind(mark)
        return before, session.view

    before, after = anyio.run(main)

    assert list(after.conversation.messages) == list(before.conversation.messages)


def test_step_limit_reminder_is_repeated_after_a_summary() -> None:
    model = LongModel(lambda n: look_reply(n) if n < 16 else Reply("Done."))
    store = MemoryStore()

    run_conversation(store, world(model, 18, CompactionShares(prune=1)), "Look.")

    numbers = [
        n for n, r in enumerate(model.asked) if "more answers are allowed" in words(r)
    ]
    assert numbers[-1] == len(model.asked) - 1


def test_interrupted_summary_leaves_the_conversation_unchanged() -> None:
    model = LongModel(lambda n: look_reply(n, 100) if n < 6 else Reply("Done."))
    store = MemoryStore()

    async def main() -> View:
        stuck = Hanging(model)
        session = await open_session(store, world(model, helper_model=lambda: Model(stuck)))
        await session.inbox.say("Look.")
        await session.run_turns()
        await session.inbox.say("Go on.")
        await session.inbox.compact()
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await stuck.asked.wait()
            await session.inbox.interrupt()
        return session.view

    view = anyio.run(main)

    assert view.turn.outcome == "interrupted"
    assert compactions(store) == []
    assert view == fold(entries(store))


def test_full_window_fails_the_turn_when_compaction_is_switched_off() -> None:
    model = LongModel(lambda n: look_reply(n, 6_000) if n < 40 else Reply("Done."))
    store = MemoryStore()

    view = run_conversation(
        store, world(model, shares=CompactionShares(prune=1, compact=1)), "Look."
    )

    assert view.turn.outcome == "failed"
    assert "takes 8,000: nothing was sent" in view.turn.reason
    assert compactions(store) == []


def test_message_at_a_full_window_is_delivered_once_and_the_turn_fails() -> None:
    """A turn that ended before its message was delivered would begin again without end."""
    model = LongModel(lambda n: look_reply(n, 6_000) if n < 40 else Reply("Done."))
    store = MemoryStore()

    view = run_conversation(
        store, world(model, shares=CompactionShares(prune=1, compact=1)), "Look.", "Again."
    )

    assert (view.turn.outcome, view.conversation.undelivered) == ("failed", ())
    assert len([e for e in entries(store) if isinstance(e.event, TurnEnded)]) == 2
