"""The cost of a session and the budget of a turn: by purpose, and what is not known."""

from collections.abc import Sequence
from typing import cast

import pytest
from msgspec import to_builtins

from refold.journal.events.kinds import (
    Entry,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Reserved,
    Said,
    Settled,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import BudgetSet
from refold.journal.state.fold import fold
from refold.values.messages import Message, Text
from refold.values.usage import NO_LIMIT, Budget, Usage
from refold.views.cost import budget_lines, spending, spending_document, spending_lines
from refold.views.styled import plain_text


def entries(*events: Event) -> Sequence[Entry]:
    return [Entry(seq, event) for seq, event in enumerate(events, start=1)]


def answer(model: str, usage: Usage, cost: float | None = None) -> ModelAnswered:
    return ModelAnswered(Message("assistant", (Text("x"),)), usage, model=model, cost=cost)


def day() -> Sequence[Entry]:
    """Two turns on two models, a summary in the second, memory made afterwards."""
    return entries(
        Said("fix the\ntest \x1b"),
        TurnStarted(1),
        answer("m/a", Usage(100, 0, 0, 10), 1.0),
        TurnEnded("answered"),
        TurnStarted(4, "continue"),
        Reserved("summary", "m/small", 0.1, 50),
        Settled(6, Usage(50, 0, 0, 5), "m/small", 0.25),
        ModelFailed("gone", usage=Usage(7), model="m/a", cost=0.0),
        answer("m/long", Usage(200, 50, 0, 20)),
        TurnEnded("step_limit", "50"),
        Reserved("memory", "m/small", 0.6, 60),
        Settled(11, Usage(30, 0, 0, 3), "m/small", 0.5),
    )


def test_cost_is_listed_by_turn_model_and_purpose_and_unknown_prices_not_guessed() -> None:
    result = spending(day())

    assert plain_text(spending_lines(result, "27% of window", turns=True)) == (
        "  1  fix the test \\x1b\n"
        "     100 in · 10 out · $1.00\n"
        "  2  (continued)\n"
        "     307 in (50 cached) · 25 out · at least $0.25 · step limit\n"
        "     (between turns)\n"
        "     30 in · 3 out · $0.50\n"
        "\n"
        "m/a      107 in · 10 out · $1.00\n"
        "m/small  80 in · 8 out · $0.75\n"
        "m/long   250 in (50 cached) · 20 out · price unknown\n"
        "\n"
        "main     357 in (50 cached) · 30 out · at least $1.00\n"
        "summary  50 in · 5 out · $0.25\n"
        "memory   30 in · 3 out · $0.50\n"
        "in all  437 in (50 cached) · 38 out · at least $1.75\n"
        "27% of window"
    )


def test_listed_costs_add_up_to_the_account_of_the_session() -> None:
    result, view = spending(day()), fold(day())

    assert result.spent == view.account.spent
    assert dict(result.by_model) == dict(view.account.by_model)
    for parts in ([t.spent for t in result.turns], result.by_purpose.values()):
        assert sum(part.dollars for part in parts) == pytest.approx(result.spent.dollars)
        assert sum(part.answers for part in parts) == result.spent.answers


def test_the_cost_document_has_null_for_an_unknown_price() -> None:
    document = to_builtins(spending_document(spending(day())))

    assert document["cost"] is None
    assert document["known_cost"] == 1.75
    assert document["unpriced"] == 1
    assert [(m["model"], m["cost"]) for m in rows(document["models"])] == [
        ("m/a", 1.0), ("m/small", 0.75), ("m/long", None),
    ]  # fmt: skip
    assert [(t["turn"], t["outcome"], t["cost"]) for t in rows(document["turns"])] == [
        (2, "answered", 1.0), (5, "step_limit", None), (0, "", 0.5),
    ]  # fmt: skip
    assert "turns" not in to_builtins(spending_document(spending(day()), turns=False))


def test_a_turn_is_named_by_the_typed_command_instead_of_the_expanded_template() -> None:
    turn = entries(
        Said("Fix it, and run the tests.", typed="/fix it"),
        TurnStarted(1),
        answer("m/a", Usage(), None),
        TurnEnded("interrupted"),
    )

    assert plain_text(spending_lines(spending(turn), turns=True)).split("\n")[:2] == [
        "  1  /fix it",
        "     not counted by the provider · interrupted",
    ]


def test_the_cost_of_one_model_and_purpose_is_one_line() -> None:
    one = entries(Said("x"), TurnStarted(1), answer("m/a", Usage(5), 0.0))

    assert plain_text(spending_lines(spending(one))) == "m/a  5 in · 0 out · $0.00"
    assert plain_text(spending_lines(spending(()))) == "Nothing has been used yet."


def rows(value: object) -> Sequence[dict[str, object]]:
    return cast("Sequence[dict[str, object]]", value)


SPENT = (
    TurnStarted(1),
    answer("m/a", Usage(1000, 400, 100, 500), 1.5),
    ModelAsked(dollars=0.25, tokens=900),
)


@pytest.mark.parametrize(
    ("events", "settled", "expected"),
    [
        ((), NO_LIMIT,
         "No budget: a turn may use up whatever it needs. /budget USD sets one."),
        ((), Budget(5.0, 2_000_000),
         "One turn may use up, as it is set:\n  $5.00\n"
         "  2M uncached tokens, while the price is not known"),
        (SPENT, Budget(5.0),
         "One turn may use up, as it is set:\n"
         "  $5.00  (this turn: $1.50 used, $0.25 reserved, $3.25 left)"),
        ((*SPENT, BudgetSet(Budget(tokens=4000, calls=3, seconds=90))), Budget(5.0),
         "One turn may use up, chosen for this session:\n"
         "  4,000 uncached tokens, while the price is not known"
         "  (this turn: 1,600 used, 900 reserved, 1,500 left)\n"
         "  3 model calls  (this turn: 1 made, 1 left)\n"
         "  1 min 30 s  (this turn: 0.0 s so far)"),
        ((TurnStarted(1), answer("m/a", Usage(5)), TurnEnded("answered")), Budget(5.0),
         "One turn may use up, as it is set:\n  $5.00  (the last turn: $0.00 used, "
         "and more whose price is not known, $5.00 left)"),
    ],
)  # fmt: skip
def test_a_budget_is_shown_with_used_reserved_and_remaining_amounts(
    events: tuple[Event, ...], settled: Budget, expected: str
) -> None:
    assert plain_text(budget_lines(fold(entries(*events)), settled)) == expected
