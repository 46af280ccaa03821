"""No response is free, or a credit, because of what its provider counts."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some

from refold.engine.call_cost import MeasuredCall, charge, plausible_usage
from refold.engine.policies.budget import end_over_budget
from refold.engine.policies.conversation import converse
from refold.engine.policies.step_limit import going_on
from refold.engine.world import Model, World
from refold.journal.events.kinds import ModelAnswered, ModelFailed
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.provider.port import Done
from refold.testing.providers import Reply, ScriptedProvider
from refold.values.usage import Budget, Usage
from refold.views.notices import ESTIMATED_NOTICE
from refold.views.number_format import spent_row
from refold.views.screen.screen import screen_of
from tests.engine.house import OPEN_HAND, WEATHER, entries, open_session, weather

PAGE = "word " * 600
CALL = MeasuredCall(sent_chars=3_000, received_chars=3_000)
BILLIONS = 3_000_000_000


def a_dollar_for_a_million(model: str, usage: Usage) -> float | None:
    return (usage.input + usage.output) / 1e6


def a_cent_for_ten_tokens(model: str, usage: Usage) -> float | None:
    return (usage.input + usage.output) / 1000


@pytest.mark.parametrize(
    ("reported_usage", "charged"),
    [
        (Usage(), Usage(fresh=1_000, output=1_000, estimated=True)),
        (Usage(fresh=700), Usage(fresh=700, output=1_000, estimated=True)),
        (Usage(output=700), Usage(fresh=1_000, output=700, estimated=True)),
        (Usage(fresh=700, output=1), Usage(fresh=700, output=1_000, estimated=True)),
        (Usage(BILLIONS, output=9_999), Usage(1_000, output=9_999, estimated=True)),
        (Usage(700, output=BILLIONS), Usage(700, output=1_000, estimated=True)),
        (Usage(700, output=-BILLIONS), Usage(700, output=1_000, estimated=True)),
        (Usage(fresh=10**30), Usage(fresh=1_000, output=1_000, estimated=True)),
    ],
)
def test_implausible_usage_is_replaced_by_an_estimate(
    reported_usage: Usage, charged: Usage
) -> None:
    assert plausible_usage(reported_usage, CALL) == charged


@pytest.mark.parametrize(
    "reported_usage",
    [
        Usage(fresh=700, output=800),
        Usage(cached=700, output=800),
        Usage(fresh=700, output=120_000, reasoning=119_200),  # thought much, and hid it
        Usage(fresh=700, output=200),  # a table of dashes has long tokens
    ],
)
def test_plausible_usage_is_charged_unchanged(reported_usage: Usage) -> None:
    assert plausible_usage(reported_usage, CALL) == reported_usage


def test_usage_of_an_agent_program_may_exceed_a_single_request() -> None:
    usage = Usage(fresh=20_000_000, output=2_000_000)

    assert plausible_usage(usage, CALL, by_agent=True) == usage
    assert plausible_usage(usage, CALL).estimated


@pytest.mark.parametrize(
    ("reported_cost", "charged"),
    [
        (0.5, 0.5),
        (0.0, 0.002),
        (-9.0, 0.002),
        (float("inf"), 0.002),
        (float("nan"), 0.002),
        (None, 0.002),
    ],
)
def test_implausible_reported_cost_is_replaced_by_the_computed_one(
    reported_cost: float | None, charged: float
) -> None:
    assert (
        charge(Done(cost=reported_cost), CALL, "x/y", a_dollar_for_a_million).cost
        == charged
    )


@given(
    some.builds(Usage, *[some.integers(-(10**12), 10**12)] * 5),
    some.integers(1_000, 10**6),
    some.integers(1_000, 10**6),
    some.sampled_from([0, 8_192]),
)
def test_charged_tokens_are_never_far_below_the_text_length(
    reported: Usage, sent: int, heard: int, limit: int
) -> None:
    usage = plausible_usage(reported, MeasuredCall(sent, heard, limit=limit))

    assert usage.input >= max(1, (sent - 40_000) / 32)
    assert usage.output >= (heard - 400) / 32
    assert usage.input + usage.output <= 12_000_000 + 4 * heard


def spend_budget(answer: Reply, budget: Budget) -> tuple[View, MemoryStore]:
    """Run a model that repeats its answer until the budget is used up."""
    policies = (going_on, converse, end_over_budget(budget))
    model = Model(ScriptedProvider(*[answer] * 50), price=a_cent_for_ten_tokens)
    scripted_world, store = (
        World(model, (weather,), policies, OPEN_HAND, budget=budget),
        MemoryStore(),
    )

    async def main() -> View:
        session = await open_session(store, scripted_world)
        await session.inbox.say("How is it everywhere?")
        return await session.run_turns()

    return anyio.run(main), store


@pytest.mark.parametrize("usage", [Usage(), Usage(output=-1_000_000), Usage(BILLIONS)])
def test_budget_stops_a_provider_that_reports_no_usage(usage: Usage) -> None:
    answer = Reply(PAGE, calls=(WEATHER,), usage=usage)

    view, _ = spend_budget(answer, Budget(dollars=10.0))

    assert view.turn.outcome == "budget"
    assert 3 < view.turn.steps < 20
    assert 0 < view.account.spent.dollars < 20


def test_estimated_costs_are_announced_once_and_marked_with_a_tilde() -> None:
    view, store = spend_budget(Reply(PAGE, calls=(WEATHER,), usage=Usage()), Budget(10.0))

    text = "".join(str(block) for block in screen_of(entries(store)).done)

    assert text.count(ESTIMATED_NOTICE) == 1
    assert spent_row(view.account.spent).startswith("~")
    assert "~$" in spent_row(view.account.spent)


def test_reported_costs_are_not_marked_as_estimated() -> None:
    usage = Usage(fresh=900, output=900)

    view, store = spend_budget(Reply(PAGE, calls=(WEATHER,), usage=usage), Budget(10.0))

    assert ESTIMATED_NOTICE not in "".join(str(b) for b in screen_of(entries(store)).done)
    assert "~" not in spent_row(view.account.spent)


def test_answer_that_fails_after_streaming_text_is_charged() -> None:
    _, store = spend_budget(
        Reply(PAGE.replace("word ", " " * 5), usage=Usage()), Budget(10.0)
    )

    failed = [e.event for e in entries(store) if isinstance(e.event, ModelFailed)]
    assert {item.usage and item.usage.output for item in failed} == {1_000}
    assert all(item.cost for item in failed)
    assert not any(isinstance(e.event, ModelAnswered) for e in entries(store))
