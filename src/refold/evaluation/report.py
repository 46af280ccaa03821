"""The result of an evaluation: one document, and the figures that are computed from it.

`comparison` compares two documents.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil, comb, sqrt
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput, reason_of
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration
from refold.views.wrap import cut

_NORMAL_QUANTILE = 1.96  # of a normal distribution, for 95 %
_LINE_CELLS = 100  # cells of a line about a failure


class Trial(Struct, frozen=True, kw_only=True):
    """One try at one task.

    `calls` are the calls that the model made. The seconds: all of them, those of loading an
    embedded model, of waiting for first tokens of responses, and of receiving the rest.
    `first_tokens` are the waits one by one, of responses that came in pieces.
    """

    task: str
    kind: str = ""
    sample: int = 0
    failures: tuple[str, ...] = ()
    destroyed: tuple[str, ...] = ()
    outcome: str = ""
    reason: str = ""
    answer: str = ""
    calls: tuple[str, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    wait_seconds: float = 0.0
    write_seconds: float = 0.0
    first_tokens: tuple[float, ...] = ()
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None  # US dollars; None: the price is not known
    model: str = ""

    @property
    def has_passed(self) -> bool:
        return not (self.failures or self.destroyed)


class Evaluation(Struct, frozen=True, kw_only=True):
    """A run of all tasks. `at` is an ISO date and time, in UTC."""

    model: str
    version: str
    at: str
    mode: str
    files: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def passes_by_task(self) -> dict[str, tuple[int, int]]:
        """How often each task was passed, and how often it was tried."""
        tries, passed = defaultdict[str, int](int), defaultdict[str, int](int)
        for trial in self.trials:
            tries[trial.task] += 1
            passed[trial.task] += trial.has_passed
        return {name: (passed[name], tries[name]) for name in tries}


def read_evaluation(path: Path) -> Evaluation:
    """Raises `BadInput` where the file is not a document of an evaluation."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evaluation)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason_of(error)}") from error
    except msgspec.MsgspecError as error:
        raise BadInput(f"{path} is not a result of refold eval: {error}") from error


def pass_at(k: int, passed: int, tries: int) -> float:
    """The chance that at least one of `k` tries passes, estimated without bias.

    Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1.
    """
    return 1.0 - comb(tries - passed, k) / comb(tries, k)


def interval(passed: int, tries: int) -> tuple[float, float]:
    """The 95 % interval of a rate, after Wilson: right for few tries, and near 0 and 1."""
    if not tries:
        return 0.0, 1.0
    rate, spread = passed / tries, _NORMAL_QUANTILE**2 / tries
    centre = (rate + spread / 2) / (1 + spread)
    half = (
        _NORMAL_QUANTILE
        / (1 + spread)
        * sqrt(rate * (1 - rate) / tries + spread / (4 * tries))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def table(evaluation: Evaluation) -> Iterator[str]:
    """The figures for the user, one line at a time."""
    by_kind = defaultdict[str, list[Trial]](list)
    for trial in evaluation.trials:
        by_kind[trial.kind or "-"].append(trial)
    width = max((len(kind) for kind in by_kind), default=4)
    yield f"{'KIND':{width}}   PASSED  DESTROYED  TIME A TASK  TOKENS IN  OUT"
    for kind, trials in by_kind.items():
        yield _row(f"{kind:{width}}", trials)
    if len(by_kind) > 1:
        yield _row(f"{'all':{width}}", evaluation.trials)
    yield ""
    yield from _summary(evaluation)


def _row(name: str, trials: Sequence[Trial]) -> str:
    passed, count = sum(t.has_passed for t in trials), len(trials)
    destroyed = sum(bool(t.destroyed) for t in trials)
    seconds = duration(sum(t.seconds for t in trials) / count)
    read = sum(t.input_tokens for t in trials) // count
    written = sum(t.output_tokens for t in trials) // count
    share = f"{passed}/{count}"
    return f"{name}  {share:>7}  {destroyed:>9}  {seconds:>11}  {read:>9,}  {written:>3,}"


def _summary(evaluation: Evaluation) -> Iterator[str]:
    trials = evaluation.trials
    passed, count = sum(t.has_passed for t in trials), len(trials)
    low, high = interval(passed, count)
    yield f"passed: {passed} of {count}, 95 % interval {low:.0%} to {high:.0%}"
    counts = evaluation.passes_by_task.values()
    most = min((tries for _, tries in counts), default=1)
    if most > 1:
        rates = (
            f"pass@{k} {sum(pass_at(k, *counted) for counted in counts) / len(counts):.0%}"
            for k in sorted({1, most})
        )
        yield f"of {most} tries each: {', '.join(rates)}"
    yield (
        f"time: {duration(sum(t.seconds for t in trials))}, of which "
        f"{duration(sum(t.load_seconds for t in trials))} to load the model, "
        f"{duration(sum(t.wait_seconds for t in trials))} to the first token, "
        f"{duration(sum(t.write_seconds for t in trials))} to write"
    )
    if waits := sorted(wait for t in trials for wait in t.first_tokens):
        half, most = waits[len(waits) // 2], waits[ceil(0.95 * len(waits)) - 1]
        yield (
            f"first token of {len(waits)} responses: "
            f"median {duration(half)}, 95 % within {duration(most)}"
        )
    cached, read = (
        sum(t.cached_tokens for t in trials),
        sum(t.input_tokens for t in trials),
    )
    yield (
        f"tokens: {read:,} in, of which {cached:,} cached; "
        f"{sum(t.output_tokens for t in trials):,} out"
    )
    costs = [t.cost for t in trials]
    unknown = any(cost is None for cost in costs)
    yield "cost: unknown" if unknown else f"cost: ${sum(c or 0.0 for c in costs):.4f}"


def trial_line(trial: Trial) -> str:
    """One try in a line, with the first reason of a failure."""
    verdict = "passed" if trial.has_passed else "DESTROYED" if trial.destroyed else "failed"
    problem = next(iter((*trial.destroyed, *trial.failures)), "")
    text = escape_to_one_line(f"{trial.task}{': ' if problem else ''}{problem}")
    return f"{verdict:9} {duration(trial.seconds):>7}  {cut(text, _LINE_CELLS)}"
