"""Two evaluations of the same tasks: which is better, and how sure that is.

Tasks are compared pairwise, because some are harder than others for every model.
"""

from collections.abc import Iterator
from math import comb
from random import Random

from msgspec import Struct

from refold.errors import BadInput
from refold.evaluation.report import Evaluation, interval
from refold.views.number_format import duration

_DRAWS = 10_000
_SEED = 1  # the same interval for the same results


class Comparison(Struct, frozen=True):
    """`difference` is the rate of the second minus that of the first, with its interval.

    `p` is the chance of a difference this large if both were equally good (McNemar, exact).
    """

    tasks: int
    difference: float
    low: float
    high: float
    gained: tuple[str, ...]  # tasks that only the second passes more often
    lost: tuple[str, ...]
    p: float


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Raises `BadInput` if they have no task in common."""
    one, other = first.passed_by_task, second.passed_by_task
    names = [name for name in one if name in other]
    if not names:
        raise BadInput("the two evaluations have no task in common")
    gains = [
        other[name][0] / other[name][1] - one[name][0] / one[name][1] for name in names
    ]
    low, high = _bootstrap(gains)
    gained = tuple(n for n, gain in zip(names, gains, strict=True) if gain > 0)
    lost = tuple(n for n, gain in zip(names, gains, strict=True) if gain < 0)
    mean = sum(gains) / len(gains)
    return Comparison(
        len(names), mean, low, high, gained, lost, _mcnemar(len(gained), len(lost))
    )


def _bootstrap(gains: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, from tasks drawn again and again."""
    draw, count = Random(_SEED), len(gains)
    means = sorted(sum(draw.choices(gains, k=count)) / count for _ in range(_DRAWS))
    return means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS)]


def _mcnemar(gained: int, lost: int) -> float:
    count = gained + lost
    tail = sum(comb(count, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**count)


def comparison_lines(first: Evaluation, second: Evaluation) -> Iterator[str]:
    found = compare(first, second)
    for name, each in (("first", first), ("second", second)):
        passed, tries = sum(t.passed for t in each.trials), len(each.trials)
        low, high = interval(passed, tries)
        seconds = duration(sum(t.seconds for t in each.trials) / tries)
        destroyed = sum(bool(t.destroyed) for t in each.trials)
        yield (
            f"{name:6}  {each.model}: {passed} of {tries} ({low:.0%} to {high:.0%}), "
            f"{destroyed} destructive, {seconds} a task"
        )
    yield (
        f"{found.tasks} tasks in both: the second passes {found.difference:+.1%} "
        f"(95 % interval {found.low:+.1%} to {found.high:+.1%}, p = {found.p:.2g})"
    )
    for what, names in (("gained", found.gained), ("lost", found.lost)):
        if names:
            yield f"{what}: {', '.join(names)}"
