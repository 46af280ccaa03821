"""A turn exceeds its budget by at most one call, however many run at the same time."""

import math
from collections.abc import AsyncGenerator, Iterable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import Raw
from msgspec.structs import replace

from refold.engine.budget import (
    Price,
    Remainder,
    ask_outside_conversation,
    remainder,
    shortfall,
)
from refold.engine.policies.budget import end_over_budget, enforceable, warn_of_budget
from refold.engine.policies.conversation import converse
from refold.engine.policies.step_limit import going_on
from refold.engine.request_log import Trace
from refold.engine.world import Model, SystemPrompt, World
from refold.errors import BadInput, ProviderError
from refold.journal.events.child_events import ChildAnswered, ChildAsked
from refold.journal.events.kinds import (
    Answered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    RequestLogged,
    Reserved,
    Settled,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import BudgetUsed, View, budget_used, fold
from refold.journal.state.turn import Turn
from refold.journal.store.port import MemoryStore
from refold.prompts.summary import summary_prompt
from refold.provider.port import Delta, Request, RequestSent, ResponseBytes
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Reply, ScriptedProvider
from refold.tools.contract import Reply as Said
from refold.tools.contract import tool
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, ToolCall
from refold.values.tools import Effect
from refold.values.usage import Budget, Estimate, Spent, Usage
from tests.engine.house import OPEN_HAND, WEATHER, entries, open_session, weather, world
from tests.engine.long_talks import words

WORDS = Log([StoredMessage(0, Message("user", (Text("How many?"),)))])
LEAF = Request(WORDS, max_output=100)
STEP = 0.05
CALL = ToolCall("b", "bash", Raw(b"{}"))


def a_cent_for_ten_tokens(model: str, usage: Usage) -> float | None:
    return (usage.input + usage.output) / 1000


def unknown_price(model: str, usage: Usage) -> float | None:
    return None


def world_with_price(
    model: ScriptedProvider, budget: Budget, price: Price = a_cent_for_ten_tokens
) -> World:
    policies = (going_on, converse, end_over_budget(budget), *warn_of_budget(budget))
    return World(
        Model(model, price=price), (weather,), policies, OPEN_HAND, budget=budget,
        prompt=SystemPrompt(max_output=100),
    )  # fmt: skip


def each_costs(dollars: float) -> ScriptedProvider:
    tokens = int(dollars * 1000)
    asks = Reply(calls=(WEATHER,), usage=Usage(fresh=tokens - 1, output=1))
    return ScriptedProvider(*[asks] * 50)


def test_fifty_concurrent_model_calls_exceed_the_budget_by_at_most_one_call() -> None:
    usage = Usage(fresh=3, output=100)
    model = ScriptedProvider(*[Reply("1", usage=usage)] * 50)
    store, budget = MemoryStore(), Budget(dollars=0.4)
    texts: list[str] = []

    @tool(Effect.LOOK)
    async def fan_out(n: int, *, session: list[Session]) -> Said:
        """Ask many models at once."""
        aide = Model(model, "x/leaf", price=a_cent_for_ten_tokens)

        async def leaf() -> None:
            try:
                await ask_outside_conversation(
                    LEAF, "leaf", aide, budget, session[0].record
                )
            except ProviderError as error:
                texts.append(str(error))

        async with anyio.create_task_group() as group:
            for _ in range(n):
                group.start_soon(leaf)
        return Said("asked")

    async def main() -> View:
        opening = world_with_price(ScriptedProvider([("fan_out", '{"n": 50}')]), budget)
        here: list[Session] = []
        fanning_world = replace(
            opening, tools=(fan_out,), tool_dependencies={"session": here}
        )
        here.append(await open_session(store, fanning_world))
        await here[0].inbox.say("Go.")
        return await here[0].run_turns()

    view = anyio.run(main)

    reservation = a_cent_for_ten_tokens("", Usage(fresh=3, output=100))
    leaves = [e.event for e in entries(store) if isinstance(e.event, Settled)]
    assert view.turn.outcome == "budget"
    assert 0 < len(leaves) == len(model.heard) < 50
    assert len(texts) == 50 - len(leaves)
    assert set(texts) == {"the budget of this turn is used up"}
    assert view.account.spent.dollars <= 0.4 + (reservation or 0)
    by_provider = sum(a_cent_for_ten_tokens("", usage) or 0 for _ in leaves)
    assert view.account.spent.dollars - by_provider == pytest.approx(
        sum(s.dollars for n, s in view.account.by_model if n != "x/leaf")
    )


def test_used_up_budget_ends_the_turn_and_continue_grants_the_same_amount_again() -> None:
    store, model = MemoryStore(), each_costs(STEP)

    async def main() -> list[View]:
        session = await open_session(store, world_with_price(model, Budget(dollars=0.12)))
        await session.inbox.say("Go.")
        return [await session.run_turns(), await session.continue_()]

    first, second = anyio.run(main)

    assert first.turn.outcome == second.turn.outcome == "budget"
    assert (
        first.turn.reason
        == "$0.15 of $0.12 are used; continue the session to spend as much again"
    )
    assert first.turn.spent.dollars == pytest.approx(0.15)
    assert second.account.spent.dollars == pytest.approx(0.30)


def test_budget_set_by_the_user_replaces_the_configured_one() -> None:
    async def main() -> View:
        session = await open_session(
            MemoryStore(), world_with_price(each_costs(STEP), Budget(dollars=0.12))
        )
        await session.inbox.set_budget(Budget(dollars=0.22))
        await session.inbox.say("Go.")
        return await session.run_turns()

    assert anyio.run(main).turn.spent.dollars == pytest.approx(0.25)


def test_tokens_are_limited_instead_of_dollars_when_the_price_is_unknown() -> None:
    model = ScriptedProvider(
        *[Reply(calls=(WEATHER,), usage=Usage(fresh=60, cached=900, output=40))] * 9
    )
    scripted_world = world_with_price(
        model, Budget(dollars=0.01, tokens=250), unknown_price
    )

    async def main() -> View:
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go.")
        return await session.run_turns()

    turn = anyio.run(main).turn
    assert turn.reason.startswith("300 of 250 tokens are used, at an unknown price")


def test_token_limit_does_not_apply_when_prices_are_known() -> None:
    def free(model: str, usage: Usage) -> float | None:
        return 0.0

    asks = Reply(calls=(WEATHER,), usage=Usage(fresh=1000))
    model = ScriptedProvider(asks, asks, "Done.")
    scripted_world = world_with_price(model, Budget(dollars=0.01, tokens=250), free)

    async def main() -> View:
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go.")
        return await session.run_turns()

    assert anyio.run(main).turn.outcome == "answered"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(calls=3), "3 of 3 model calls are used"),
        (Budget(seconds=1.5), "2 of 2 seconds are used"),
    ],
)
def test_call_limit_and_time_limit_end_a_turn(budget: Budget, reason: str) -> None:
    store, ticks = MemoryStore(), iter(range(1000))

    async def main() -> View:
        record = Recorder(store, clock=lambda: next(ticks) / 10)
        scripted_world = world_with_price(each_costs(STEP), budget)
        session = await Session.open(record, lambda _: scripted_world)
        await session.inbox.say("Go.")
        return await session.run_turns()

    assert anyio.run(main).turn.reason.startswith(reason)


@pytest.mark.parametrize(
    ("budget", "need", "message"),
    [
        (Budget(dollars=0.041), Estimate(0.044, 0), "$0.0000 of $0.0410 are used; the next "
         "call may cost $0.0440, which is more than is left"),
        (Budget(tokens=100), Estimate(None, 120), "0 of 100 tokens are used; the next call "
         "may take 120, which is more than is left"),
    ],
)  # fmt: skip
def test_budget_shortfall_is_shown_with_enough_digits(
    budget: Budget, need: Estimate, message: str
) -> None:
    assert shortfall(BudgetUsed(), budget, need) == message


def test_final_answer_that_uses_up_the_budget_still_counts_as_answered() -> None:
    model = ScriptedProvider(Reply("All done.", usage=Usage(fresh=1000)))

    async def main() -> View:
        session = await open_session(
            MemoryStore(), world_with_price(model, Budget(dollars=0.01))
        )
        await session.inbox.say("Go.")
        return await session.run_turns()

    assert anyio.run(main).turn.outcome == "answered"


def test_model_is_warned_before_the_budget_is_used_up() -> None:
    model = each_costs(STEP)

    async def main() -> View:
        session = await open_session(
            MemoryStore(), world_with_price(model, Budget(dollars=0.52))
        )
        await session.inbox.say("Go.")
        return await session.run_turns()

    anyio.run(main)

    texts = [request.messages[-1].message.text for request in model.heard]
    assert [(n, text) for n, text in enumerate(texts) if "may use up" in text] == [
        (
            6,
            "<reminder>About 42% of what this turn may use up is left ($0.22 of $0.52). Do "
            "what matters most first, and leave the rest in a state that is easy to continue "
            "from.</reminder>",
        ),
        (8, texts[6].replace("42%", "23%").replace("$0.22", "$0.12")),
        (10, texts[6].replace("42%", "4%").replace("$0.22", "$0.02")),
    ]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (ModelAsked(dollars=3.0, tokens=10), Remainder(0.25, "$1.00 of $4.00")),
        (ModelAsked(dollars=None, tokens=300), Remainder(0.625, "500 of 800 tokens")),
        (ModelAsked(dollars=0.0, tokens=10), Remainder(0.5, "1 of 2 model calls")),
    ],
)
def test_budget_reminder_uses_the_unit_of_the_nearest_limit(
    asked: ModelAsked, left: Remainder
) -> None:
    view = fold([Entry(1, TurnStarted(0)), Entry(2, asked)])
    calls = 2 if asked.dollars == 0.0 else None

    assert remainder(view, Budget(4.0, 800, calls)) == left


@pytest.mark.parametrize(
    ("budget", "cost", "refused"),
    [
        (Budget(dollars=1.0), None, True),
        (Budget(dollars=1.0), 0.0, False),
        (Budget(dollars=1.0, tokens=1000), None, False),
        (Budget(calls=3), None, False),
    ],
)
def test_dollar_limit_with_an_unknown_price_is_refused(
    budget: Budget, cost: float | None, refused: bool
) -> None:
    model = ScriptedProvider("Hello.")

    async def main() -> View:
        price: Price = lambda model, usage: cost  # noqa: E731
        policies = (enforceable(budget, price), converse, end_over_budget(budget))
        scripted_world = world(model, policies=policies, name="x/main")
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go.")
        return await session.run_turns()

    turn = anyio.run(main).turn

    assert (turn.outcome, len(model.heard)) == (
        ("budget", 0) if refused else ("answered", 1)
    )
    assert ("the price of x/main is not known" in turn.reason) == refused


def test_reservations_of_a_dead_process_stay_counted() -> None:
    model_asked = ModelAsked(dollars=0.3, tokens=300)
    view = fold([Entry(1, TurnStarted(0)), Entry(2, model_asked), Entry(3, model_asked)])

    assert budget_used(view).dollars == pytest.approx(0.6)
    assert budget_used(view).calls == 2


def test_reservation_for_a_summary_is_settled_in_the_journal() -> None:
    store = MemoryStore()

    async def main() -> View:
        model = ScriptedProvider(
            "Hello.", "Yes.", Reply("A summary.", usage=Usage(fresh=7, output=3))
        )
        scripted_world = world(model, price=a_cent_for_ten_tokens, name="x/main")
        session = await open_session(store, scripted_world)
        await session.inbox.say("Go.")
        await session.run_turns()
        await session.inbox.say("Are you sure?")
        await session.run_turns()
        await session.compact()
        return session.view

    view = anyio.run(main)

    events = [e.event for e in entries(store) if isinstance(e.event, Reserved | Settled)]
    assert [type(e).__name__ for e in events] == ["Reserved", "Settled"]
    assert events[0].purpose == "summary"  # type: ignore[union-attr]
    assert events[1].cost == pytest.approx(0.01)  # type: ignore[union-attr]
    assert view.account.spent.dollars > 0.01
    assert not any(isinstance(e.event, TurnEnded) for e in entries(store)[-3:])
    assert "A summary." in words(Request(view.conversation.messages))


def _paid(kind: str, model: str, fresh: int, cost: float | None) -> list[Event]:
    usage = Usage(fresh=fresh, output=1)
    answer = ModelAnswered(Message("assistant", (Text("so"),)), usage, "end", model)
    match kind:
        case "answer":
            return [ModelAsked(dollars=1.0), replace(answer, cost=cost)]
        case "cut":
            return [ModelAsked(), replace(answer, cost=cost, stop="length")]
        case "too long":
            return [ModelAsked(), ModelFailed("no", "TooLong", "", usage, model, cost)]
        case "down":
            return [ModelAsked(), ModelFailed("no", "Overloaded", "", usage, model, cost)]
        case _:
            return [Settled(1, usage, model, cost, kind)]


PAID = some.builds(
    _paid,
    some.sampled_from(["answer", "cut", "too long", "down", "", "refused"]),
    some.sampled_from(["a/b", "a/c", ""]),
    some.integers(0, 9),
    some.sampled_from([None, 0.0, 0.25]),
)


@given(some.lists(some.lists(PAID, max_size=6), max_size=3))
def test_costs_of_turns_and_models_add_up_to_the_total(
    turns: list[list[list[Event]]],
) -> None:
    view, seq, of_turns = View(), 0, list[Spent]()
    for count in turns:
        news = [
            TurnStarted(0),
            *(e for events in count for e in events),
            TurnEnded("answered"),
        ]
        view = fold([Entry(seq + n, e) for n, e in enumerate(news, start=1)], view)
        seq += len(news)
        of_turns.append(view.turn.spent)

    everything = view.account.spent
    assert add_up(of_turns) == add_up(s for _, s in view.account.by_model) == everything


def add_up(items: Iterable[Spent]) -> Spent:
    whole = Spent()
    for one in items:
        whole = Spent(
            whole.usage + one.usage,
            whole.dollars + one.dollars,
            whole.answers + one.answers,
            whole.unpriced + one.unpriced,
        )
    return whole


def test_zero_budget_ends_the_turn_with_its_message_delivered() -> None:
    async def main() -> View:
        session = await open_session(
            MemoryStore(), world_with_price(each_costs(STEP), Budget(dollars=0.0))
        )
        await session.inbox.say("Go.")
        return await session.run_turns()

    view = anyio.run(main)

    assert (view.turn.outcome, view.conversation.undelivered) == ("budget", ())


@pytest.mark.parametrize(
    "budget", [Budget(dollars=math.nan), Budget(dollars=math.inf), Budget(tokens=-1)]
)
def test_invalid_budget_is_refused(budget: Budget) -> None:
    async def main() -> None:
        session = await open_session(MemoryStore(), world(ScriptedProvider()))
        await session.inbox.set_budget(budget)

    with pytest.raises(BadInput, match=r"a budget's (dollars|tokens) cannot be"):
        anyio.run(main)


class OverAWire:
    """Reports the bytes that go out and come in, as wires do on request."""

    def __init__(self, *lines: str) -> None:
        self._inner = ScriptedProvider(*lines)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if request.trace:
            yield RequestSent("POST /", request.system.encode())
            yield ResponseBytes(b"it came")
        async for delta in self._inner.stream(request):
            yield delta


def test_model_call_outside_the_conversation_is_traced() -> None:
    store = MemoryStore()

    async def main() -> None:
        provider = OverAWire("Hello. " * 99, "Yes.", "A summary.")
        scripted_world = world(provider, trace=Trace(), system="Be kind.")
        session = await open_session(store, scripted_world)
        for text in ("Go.", "Are you sure?"):
            await session.inbox.say(text)
            await session.run_turns()
        await session.compact()

    anyio.run(main)

    traced = [e.event for e in entries(store) if isinstance(e.event, RequestLogged)]
    values = [anyio.run(store.blobs.get, item.request) for item in traced]
    assert len(traced) == 3
    assert values[-1] == summary_prompt().encode()


def turn_at(*events: tuple[float, Event]) -> Turn:
    return fold(
        [Entry(n, event, at=when) for n, (when, event) in enumerate(events, 1)]
    ).turn


def test_waiting_for_the_user_does_not_count_toward_the_time_limit() -> None:
    starteds = (100.0, TurnStarted(0))
    result, too = (
        (110.0, Judged("a", "ask")),
        (112.0, ChildAsked("child-1/b", "child-1", "", CALL)),
    )
    first, last = (140.0, Answered("a", True)), (150.0, ChildAnswered("child-1/b", True))

    assert turn_at(starteds, result).seconds(until=130.0) == 10.0
    assert turn_at(starteds, result, too, first).seconds(until=145.0) == 10.0
    assert turn_at(starteds, result, too, first, last).seconds(until=160.0) == 20.0
    assert turn_at(starteds, (110.0, Judged("a", "allow"))).seconds(until=130.0) == 30.0


def test_unanswered_question_pauses_the_turn_clock_until_its_call_ends() -> None:
    outcome, result = (100.0, TurnStarted(0)), (110.0, Judged("a", "ask"))
    ended = (150.0, Ended("a", "refused", "Refused: nobody answered."))

    assert turn_at(outcome, result, ended).seconds(until=155.0) == 15.0


def test_budget_seconds_of_an_ended_turn_exclude_the_wait_for_the_user() -> None:
    begun, outcome, result = (
        (100.0, TurnStarted(0)), (101.0, Judged("a", "ask")), (900.0, Answered("a", True)),
    )  # fmt: skip
    endeds = (begun, outcome, result, (905.0, Ended("a", "done", "")))
    view = fold([Entry(n, event, at=when) for n, (when, event) in enumerate(endeds, 1)])

    assert budget_used(view).seconds == 6.0
