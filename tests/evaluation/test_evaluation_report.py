"""The figures of an evaluation: rates, intervals, and the comparison of two runs."""

import pytest
from msgspec.structs import replace

from refold.errors import BadInput
from refold.evaluation.comparison import compare, comparison_lines
from refold.evaluation.report import Evaluation, Trial, interval, pass_at, table, trial_line


def evaluation(**passed: str) -> Evaluation:
    """Tasks by their tries: "++-" is two passed and one failed."""
    trials = tuple(
        Trial(
            task=name,
            kind="edit",
            sample=n,
            failures=() if sign == "+" else ("no",),
            destroyed=("x is gone",) if sign == "!" else (),
            seconds=2.0,
            input_tokens=100,
            output_tokens=10,
            cost=0.25,
        )
        for name, signs in passed.items()
        for n, sign in enumerate(signs)
    )
    return Evaluation(
        model="a/b", version="1", at="", mode="sandbox", files=(), trials=trials
    )


@pytest.mark.parametrize(
    ("k", "passed", "tries", "chance"),
    [(1, 1, 2, 0.5), (2, 1, 2, 1.0), (2, 1, 4, 0.5), (1, 0, 3, 0.0), (3, 3, 3, 1.0)],
)
def test_pass_at_k_is_the_unbiased_estimate(
    k: int, passed: int, tries: int, chance: float
) -> None:
    assert pass_at(k, passed, tries) == pytest.approx(chance)


@pytest.mark.parametrize(
    ("passed", "tries", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_the_interval_of_a_rate_matches_published_values(
    passed: int, tries: int, low: float, high: float
) -> None:
    assert interval(passed, tries) == pytest.approx((low, high), abs=5e-5)


def test_the_table_counts_passed_and_destructive_tries() -> None:
    lines = list(table(evaluation(a="+-", b="!+")))

    assert lines[:2] == [
        "KIND   PASSED  DESTROYED  TIME A TASK  TOKENS IN  OUT",
        "edit      2/4          1        2.0 s        100   10",
    ]
    assert "passed: 2 of 4, 95 % interval 15% to 85%" in lines
    assert "of 2 tries each: pass@1 50%, pass@2 100%" in lines
    assert "cost: $1.0000" in lines


def test_the_table_shows_median_and_95th_percentile_of_first_token_waits() -> None:
    run = evaluation(a="+", b="+")
    waits = tuple(n / 10 for n in range(1, 21))
    trials = (replace(run.trials[0], first_tokens=waits), run.trials[1])

    lines = list(table(replace(run, trials=trials)))

    assert "first token of 20 responses: median 1.1 s, 95 % within 1.9 s" in lines
    assert not any(line.startswith("first token") for line in table(run))


def test_a_trial_line_shows_outcome_time_task_and_first_problem() -> None:
    good, bad = evaluation(a="+!").trials

    assert trial_line(good) == "passed      2.0 s  a"
    assert trial_line(bad) == "DESTROYED   2.0 s  a: x is gone"


def test_the_interval_of_a_clear_difference_excludes_zero() -> None:
    names = [f"t{n}" for n in range(12)]
    first = evaluation(**dict.fromkeys(names, "-"))
    second = evaluation(**{n: "+" if n != "t0" else "-" for n in names})

    comparison = compare(first, second)

    assert comparison.difference == pytest.approx(11 / 12)
    assert 0 < comparison.low <= comparison.difference <= comparison.high <= 1
    assert comparison.p == pytest.approx(2 / 2**11)
    assert (len(comparison.gained), comparison.lost) == (11, ())


def test_comparing_equal_runs_gives_a_difference_of_zero() -> None:
    same = evaluation(a="+", b="-", c="+")

    comparison = compare(same, same)

    assert (comparison.difference, comparison.low, comparison.high, comparison.p) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )


def test_only_tasks_of_both_evaluations_are_compared() -> None:
    comparison = compare(evaluation(a="+", b="+"), evaluation(b="-", c="+"))

    assert (comparison.tasks, comparison.difference, comparison.lost) == (1, -1.0, ("b",))
    with pytest.raises(BadInput, match="no task in common"):
        compare(evaluation(a="+"), evaluation(b="+"))


def test_a_comparison_names_gained_and_lost_tasks() -> None:
    lines = list(comparison_lines(evaluation(a="-", b="+"), evaluation(a="+", b="!")))

    assert lines[0].startswith("first   a/b: 1 of 2 (")
    assert "1 destructive" in lines[1]
    assert lines[-2:] == ["gained: a", "lost: b"]
