"""Compares two evaluations of the same tasks: which is better, and how certain that is.

The two results of each task are compared, because some tasks are harder for every model.
"""

from collections.abc import Iterator
from math import comb
from random import Random

from msgspec import Struct

from refold.errors import BadInput
from refold.evaluation.report import Evaluation, interval
from refold.views.number_format import duration

_BOOTSTRAP_DRAWS = 10_000
_RANDOM_SEED = 1  # the same interval for the same results


class Comparison(Struct, frozen=True):
    """The difference between two evaluations, over the tasks that both have.

    `difference` is the pass rate of the second evaluation minus that of the first; `low` and
    `high` are its 95 % interval. `p` is the p-value of McNemar's exact test: the probability of
    a difference at least as large if both were equally good.
    """

    tasks: int
    difference: float
    low: float
    high: float
    gained: tuple[str, ...]  # tasks that only the second passes more often
    lost: tuple[str, ...]
    p: float


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compare two evaluations by the tasks that both have.

    Raises `BadInput` if they have no task in common.
    """
    first_passes, second_passes = first.passes_by_task, second.passes_by_task
    names = [name for name in first_passes if name in second_passes]
    if not names:
        raise BadInput("the two evaluations have no task in common")
    gains = list[float]()
    for name in names:
        first_passed, first_tries = first_passes[name]
        second_passed, second_tries = second_passes[name]
        gains.append(second_passed / second_tries - first_passed / first_tries)
    low, high = _bootstrap(gains)
    gained = tuple(n for n, gain in zip(names, gains, strict=True) if gain > 0)
    lost = tuple(n for n, gain in zip(names, gains, strict=True) if gain < 0)
    mean = sum(gains) / len(gains)
    return Comparison(
        len(names), mean, low, high, gained, lost, _mcnemar(len(gained), len(lost))
    )


def _bootstrap(gains: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `gains`, by bootstrap.

    That is the interval of the means of many samples, drawn from `gains` with replacement.
    """
    random = Random(_RANDOM_SEED)
    count = len(gains)
    means = sorted(
        sum(random.choices(gains, k=count)) / count for _ in range(_BOOTSTRAP_DRAWS)
    )
    return means[int(0.025 * _BOOTSTRAP_DRAWS)], means[int(0.975 * _BOOTSTRAP_DRAWS)]


def _mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    `gained` tasks are passed more often in the second evaluation, `lost` ones in the first.
    """
    count = gained + lost
    tail = sum(comb(count, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**count)


def comparison_lines(first: Evaluation, second: Evaluation) -> Iterator[str]:
    """Yield the lines of a comparison for the user. Raises `BadInput` as `compare` does."""
    comparison = compare(first, second)
    for name, evaluation in (("first", first), ("second", second)):
        trials = evaluation.trials
        passed = sum(trial.has_passed for trial in trials)
        tries = len(trials)
        low, high = interval(passed, tries)
        seconds = duration(sum(trial.seconds for trial in trials) / tries)
        destroyed = sum(bool(trial.destroyed) for trial in trials)
        yield (
            f"{name:6}  {evaluation.model}: {passed} of {tries} ({low:.0%} to {high:.0%}), "
            f"{destroyed} destructive, {seconds} a task"
        )
    yield (
        f"{comparison.tasks} tasks in both: the second passes {comparison.difference:+.1%} "
        f"(95 % interval {comparison.low:+.1%} to {comparison.high:+.1%}, p = {comparison.p:.2g})"
    )
    for label, names in (("gained", comparison.gained), ("lost", comparison.lost)):
        if names:
            yield f"{label}: {', '.join(names)}"
