"""Summarizes the outcomes of the tasks by way and size.

A row has the right answers with an interval, tokens, money and time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from bench.long_context.ways import WAYS, Engine, Outcome, size_of
from bench.table import show
from refold.evaluation.report import interval
from refold.provider.prices import Rates
from refold.rlm.router import route

_HEADS = ("right", "95 %", "tokens", "cost", "calls", "time")


def report(
    outcomes: Sequence[Outcome], engine: Engine, rates: Rates | None, title: str
) -> None:
    sizes = list(dict.fromkeys(outcome.task.size for outcome in outcomes))
    for size in sizes:
        own = [outcome for outcome in outcomes if outcome.task.size == size]
        tokens = fmean(outcome.task.bytes / 4 for outcome in own)
        rows = [_row(way, [o for o in own if o.way == way], rates) for way in WAYS]
        routed = _row("as the router chooses", as_routed(own, engine.window), rates)
        show(f"{title}: {size}, about {tokens:,.0f} tokens", _HEADS, [*rows, routed])
    by_kind = _group(outcomes, lambda outcome: outcome.task.kind)
    show(
        f"{title}: right, by kind",
        WAYS,
        [(kind, *(_share(some, way) for way in WAYS)) for kind, some in by_kind.items()],
    )
    problems = _group(
        [o for o in outcomes if o.problem], lambda o: f"{o.way}: {o.problem}"[:70]
    )
    if problems:
        show(
            "without an answer",
            ["tasks"],
            [(why, len(some)) for why, some in problems.items()],
        )


def report_errors(outcomes: Sequence[Outcome], rate: float) -> None:
    """Report how errors add up in answers that are the sum of the counts of many leaves."""
    sums = [
        o for o in outcomes if o.way == "recursive" and o.task.kind == "rows, to be read"
    ]
    rows = list[tuple[object, ...]]()
    for size, some in _group(sums, lambda outcome: outcome.task.size).items():
        right, leaves = sum(o.is_right for o in some), max(o.leaves for o in some)
        share, spread = _rate_text(right, len(some)), interval_text(right, len(some))
        rows.append((size, leaves, share, spread, f"{(1 - rate) ** (leaves + 1):.0%}"))
    show(
        f"sums over leaves that err at {rate:.0%}",
        ["leaves", "right", "95 %", "expected"],
        rows,
    )


def as_routed(outcomes: Sequence[Outcome], window: int) -> Sequence[Outcome]:
    """Return, for each task, the outcome of the way that the router chooses."""
    ways = {"flat": "flat", "recursive": "recursive"}
    return [
        outcome
        for outcome in outcomes
        if outcome.way
        == ways[route(outcome.task.question, size_of(outcome.task, window)).way]
    ]


def _row(name: str, outcomes: Sequence[Outcome], rates: Rates | None) -> Sequence[object]:
    count, right = len(outcomes), sum(outcome.is_right for outcome in outcomes)
    if not count:
        return (name, *("–" for _ in _HEADS))
    tokens = fmean(o.usage.input + o.usage.output for o in outcomes)
    cost = f"${fmean(rates.cost(o.usage) for o in outcomes):.4f}" if rates else "–"
    return (
        name,
        _rate_text(right, count),
        interval_text(right, count),
        f"{tokens:,.0f}",
        cost,
        f"{fmean(o.calls for o in outcomes):.1f}",
        f"{fmean(o.seconds for o in outcomes):.1f} s",
    )


def _share(outcomes: Iterable[Outcome], way: str) -> str:
    some = [outcome for outcome in outcomes if outcome.way == way]
    return _rate_text(sum(outcome.is_right for outcome in some), len(some))


def _rate_text(right: int, count: int) -> str:
    return f"{right} of {count}"


def interval_text(right: int, count: int) -> str:
    low, high = interval(right, count)
    return f"{low:.0%}–{high:.0%}"


def _group(
    outcomes: Iterable[Outcome], key: Callable[[Outcome], str]
) -> dict[str, list[Outcome]]:
    groups = defaultdict[str, list[Outcome]](list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    return dict(groups)
