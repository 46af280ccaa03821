"""The line under a turn, the cost of a session, and its closing lines."""

from functools import reduce
from typing import Any

import pytest

from refold.journal.events.kinds import Delivered, Entry, Event, ModelAnswered, Said
from refold.journal.state.fold import View, fold
from refold.values.messages import Message, Text
from refold.values.usage import Spent, Usage
from refold.views.number_format import duration, outcome_line, tokens, turn_line
from refold.views.screen.history import recap
from refold.views.styled import plain_text


def fold_events(*events: Event) -> View:
    return fold(Entry(seq, event) for seq, event in enumerate(events, start=1))


def answer(
    text: str,
    model: str = "m/a",
    usage: Usage | None = None,
    cost: float | None = None,
) -> ModelAnswered:
    message = Message("assistant", (Text(text),))
    return ModelAnswered(message, usage or Usage(), model=model, cost=cost)


@pytest.mark.parametrize(
    ("answers", "size", "expected"),
    [
        ([(Usage(1000, 234, 0, 56), 12.34)], 10_000,
         "1,234 in (234 cached) · 56 out · 13% of window · $12.34 · 8.4 s"),
        ([(Usage(1), None), (Usage(20_000), None)], 0, "20.0k in · 0 out · 8.4 s"),
        ([(Usage(1), 0.5), (Usage(20_000), None)], 0, "20.0k in · 0 out · at least $0.50 · 8.4 s"),
        ([(Usage(), None)], 10_000, "8.4 s"),
        ([(Usage(1), 0.01)], 10_000, "1 in · 0 out · <1% of window · $0.0100 · 8.4 s"),
        ([], 0, "8.4 s"),
    ],
)  # fmt: skip
def test_the_line_below_a_turn_shows_tokens_time_and_cost(
    answers: list[tuple[Usage, float | None]], size: int, expected: str
) -> None:
    spent = reduce(lambda so_far, answer: so_far.plus(*answer), answers, Spent())
    last = answers[-1][0] if answers else Usage()

    assert plain_text([turn_line(spent, last, size, 8.41)]) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (9_999, "9,999"), (10_000, "10.0k"), (999_949, "999.9k"), (999_950, "1M"),
        (1_994_700, "1.99M"), (2_000_000, "2M"), (1_234_500_000, "1,234.5M"),
    ],
)  # fmt: skip
def test_large_token_counts_are_abbreviated(count: int, expected: str) -> None:
    assert tokens(count) == expected


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("answered", "", None),
        ("interrupted", "interrupted", "stopped"),
        ("interrupted", "stopped at a question", "stopped at a question"),
        ("step_limit", "50 answers", "step limit: 50 answers. Press Enter to continue."),
        ("failed", "no \x1b key", r"failed: no \x1b key"),
        (
            "step_limit",
            "50 responses were allowed; continue the session for more",
            "step limit: 50 responses were allowed. Press Enter to continue.",
        ),
        (
            "stuck",
            "bash was called 4 times alike",
            "stuck: bash was called 4 times alike. Say what to do instead, or /continue.",
        ),
        (
            "budget",
            "$5.00 of $5.00 are used; continue the session to spend as much again",
            "budget: $5.00 of $5.00 are used. /budget raises it; "
            "Enter continues with the same amount again.",
        ),
        ("", "", None),
    ],
)
def test_the_outcome_of_an_unanswered_turn_is_named(
    outcome: Any, reason: str, expected: str | None
) -> None:
    line = outcome_line(outcome, reason)

    assert (plain_text([line]) if line else None) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 01 s"), (-3, "0.0 s")],
)
def test_durations_are_abbreviated(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_the_recap_of_a_resumed_session_shows_the_last_exchanges_shortened() -> None:
    events: list[Event] = []
    for n in range(5):
        events += [Said(f"question {n}"), Delivered((3 * n + 1,)), answer(f"answer {n}")]
    events += [Said("a\x1b long\none"), Delivered((16,)), answer("1\n2\n3\n\n4\n5\n6")]

    assert plain_text(recap(fold_events(*events), 40)) == (
        "› question 3\n  answer 3\n› question 4\n  answer 4\n"
        "› a\\x1b long one\n  … 2 lines …\n  3\n  4\n  5\n  6"
    )
