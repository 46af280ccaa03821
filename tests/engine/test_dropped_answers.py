"""Responses that fail in the middle, or are empty: dropped, counted, and asked for again."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from refold.engine.collect import Collector
from refold.engine.policies.budget import end_over_budget
from refold.engine.policies.conversation import converse
from refold.engine.policies.turn_end import stopping
from refold.engine.world import Model
from refold.errors import Overloaded, ProviderError, Unreachable
from refold.journal.events.kinds import ModelAnswered, ModelAsked, ModelFailed, Started
from refold.journal.store.port import MemoryStore
from refold.provider.fallback import Fallback
from refold.provider.port import Delta, Dropped, Provider, Request, TextDelta
from refold.provider.retry import RetryingProvider
from refold.testing.providers import FaultyProvider, Reply, ScriptedProvider, deltas
from refold.values.growing import Log
from refold.values.messages import StoredMessage
from refold.values.usage import Budget, Usage
from refold.views.screen.blocks import AnswerBlock, DroppedBlock
from refold.views.screen.screen import screen_of
from tests.engine.house import OPEN_HAND, entries, run, world

BUSY = Overloaded("busy", overload=True)
RESET = Unreachable("reset")


def retrying_provider(inner: Provider) -> RetryingProvider:
    async def sleep(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    return RetryingProvider(inner, sleep=sleep)


class Breaking:
    """Gives the n-th line; if the line is a fault, it gives one half of `half` before."""

    def __init__(self, half: Reply, *lines: str | Reply | ProviderError) -> None:
        self._half, self._lines = half, lines
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        line = self._lines[len(self.heard)]
        self.heard.append(request)
        fault = line if isinstance(line, ProviderError) else None
        reply = self._half if fault else line
        assert not isinstance(reply, ProviderError)
        pieces = deltas(reply if isinstance(reply, Reply) else Reply(reply), 0)
        for delta in pieces[: len(pieces) // 2] if fault else pieces:
            await anyio.lowlevel.checkpoint()
            yield delta
        if fault:
            raise fault


HALF = Reply("I look first.", (("weather", '{"city": "Oslo"}'),))


@pytest.mark.parametrize("fault", [BUSY, RESET], ids=["overload", "reset"])
def test_dropped_answer_is_recorded_and_never_sent(fault: ProviderError) -> None:
    provider, store = Breaking(HALF, fault, "Yes."), MemoryStore()

    view = run(store, world(retrying_provider(provider)), "Umbrella?")

    kinds = [type(e.event) for e in entries(store)]
    failed = next(e.event for e in entries(store) if isinstance(e.event, ModelFailed))
    assert (view.turn.outcome, view.turn.answer) == ("answered", "Yes.")
    assert (failed.dropped, failed.partial_text) == (True, "I look first.")
    assert [k for k in kinds if k in (ModelAsked, ModelFailed, ModelAnswered)] == [
        ModelAsked, ModelFailed, ModelAsked, ModelAnswered,
    ]  # fmt: skip
    assert provider.heard[0].messages[:] == provider.heard[1].messages[:]


def test_call_in_a_dropped_answer_never_runs() -> None:
    orders: list[str] = []
    booking = Reply("", (("book", '{"what": "taxi"}'),))
    whole = [*deltas(booking, 0)][:-1]

    class Cut:
        times = 0

        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            self.times += 1
            for delta in whole if self.times == 1 else deltas(Reply("Done."), 1):
                yield delta
            if self.times == 1:
                raise RESET

    store = MemoryStore()
    view = run(store, world(retrying_provider(Cut()), orders, rules=OPEN_HAND), "Taxi!")

    assert (view.turn.outcome, orders) == ("answered", [])
    assert not any(isinstance(e.event, Started) for e in entries(store))


def test_call_before_a_dropped_answer_runs_once() -> None:
    orders: list[str] = []
    call = Reply("", (("book", '{"what": "taxi"}'),))
    provider = Breaking(HALF, call, RESET, BUSY, "Booked.")

    view = run(
        MemoryStore(), world(retrying_provider(provider), orders, rules=OPEN_HAND), "Taxi!"
    )

    assert (view.turn.outcome, orders) == ("answered", ["taxi"])


def test_usage_of_a_dropped_answer_is_estimated_and_charged() -> None:
    def price(model: str, usage: Usage) -> float:
        return usage.input * 1.0 + usage.output * 2.0

    provider, store = Breaking(HALF, RESET, "Yes."), MemoryStore()
    view = run(store, world(retrying_provider(provider), price=price), "Umbrella?")

    ends = [e.event for e in entries(store)]
    (failed,) = [e for e in ends if isinstance(e, ModelFailed)]
    (answer,) = [e for e in ends if isinstance(e, ModelAnswered)]
    assert failed.usage is not None
    assert failed.usage.estimated
    assert failed.usage.output > 0
    assert failed.cost
    assert answer.cost
    assert view.account.spent.dollars == failed.cost + answer.cost
    assert view.turn.spent.dollars == failed.cost + answer.cost
    assert view.turn.reserved == ()


def test_next_model_answers_when_the_first_keeps_breaking_off() -> None:
    first = FaultyProvider("I look", fault=BUSY, after=3, times=99)
    second = ScriptedProvider("Yes.")
    chain = Fallback(
        [("a/one", lambda: retrying_provider(first)), ("b/two", lambda: second)]
    )
    store = MemoryStore()

    view = run(store, world(chain), "Umbrella?")

    drops = [e.event for e in entries(store) if isinstance(e.event, ModelFailed)]
    assert (view.turn.outcome, view.turn.answer) == ("answered", "Yes.")
    assert (len(first.heard), len(drops)) == (10, 10)
    assert all(drop.dropped for drop in drops)


def test_budget_used_up_by_dropped_answers_ends_the_turn() -> None:
    first = FaultyProvider("I look", fault=BUSY, after=3, times=99)
    policies = (stopping, end_over_budget(Budget(dollars=2.5)), converse)

    view = run(
        MemoryStore(),
        world(retrying_provider(first), policies=policies, price=lambda *_: 1.0),
        "Umbrella?",
    )

    assert (view.turn.outcome, len(first.heard)) == ("budget", 3)


def test_answer_that_keeps_breaking_off_fails_the_turn() -> None:
    provider = FaultyProvider("I look", fault=RESET, after=3, times=99)
    store = MemoryStore()

    view = run(store, world(retrying_provider(provider)), "Umbrella?")

    ends = [e.event for e in entries(store) if isinstance(e.event, ModelFailed)]
    assert (view.turn.outcome, view.turn.reason) == ("failed", "reset")
    assert [end.dropped for end in ends] == [True, True, True, False]


def test_dropped_answer_is_marked_on_the_screen() -> None:
    store = MemoryStore()
    run(store, world(retrying_provider(Breaking(HALF, BUSY, "Yes."))), "Umbrella?")

    blocks = screen_of(entries(store)).blocks

    matching_blocks = [b for b in blocks if isinstance(b, AnswerBlock | DroppedBlock)]
    assert [(type(b), b.text) for b in matching_blocks] == [
        (DroppedBlock, "I look first."), (AnswerBlock, "Yes."),
    ]  # fmt: skip
    assert isinstance(matching_blocks[0], DroppedBlock)
    assert matching_blocks[0].mark == "dropped, the model is asked again: busy"


def test_empty_answer_is_requested_again() -> None:
    provider, store = ScriptedProvider("", Reply(thinking="Hm"), "Yes."), MemoryStore()

    view = run(store, world(provider), "Umbrella?")

    assert (view.turn.outcome, view.turn.answer) == ("answered", "Yes.")
    assert provider.heard[0].messages[:] == provider.heard[2].messages[:]
    assert view.account.spent.answers == 3


def test_model_call_outside_the_conversation_charges_dropped_answers() -> None:
    async def main() -> tuple[str, float | None]:
        model = Model(
            retrying_provider(Breaking(HALF, RESET, "", "Yes.")), price=lambda *_: 1.0
        )
        collector = Collector(model)
        came = await collector.collect(Request(Log[StoredMessage]()))
        return came.text, came.paid.cost

    assert anyio.run(main) == ("Yes.", 3.0)


def test_failed_model_call_outside_the_conversation_charges_what_was_received() -> None:
    class Dropping:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield TextDelta("I")
            yield Dropped("busy", "Overloaded")
            raise BUSY

    async def main() -> float | None:
        collector = Collector(Model(Dropping(), price=lambda *_: 1.0))
        with pytest.raises(Overloaded):
            await collector.collect(Request(Log[StoredMessage]()))
        return collector.paid.cost if collector.paid else None

    assert anyio.run(main) == 1.0
