"""Defines the result of an evaluation, as a JSON document, and computes figures from it.

`comparison` compares two results.
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
_LINE_CELLS = 100  # width of a line about a failure


class Trial(Struct, frozen=True, kw_only=True):
    """One attempt at a task.

    `sample` is the number of the attempt, from 0. `calls` are the model's tool calls, as name
    and arguments. `seconds` is the total time: `load_seconds` to load an embedded model,
    `wait_seconds` for the first tokens of responses, `write_seconds` for all later tokens;
    tools took the rest. `first_tokens` has the wait for each response that arrived in pieces.
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
    """The attempts at all tasks of some files. `at` is the date and time in UTC, as ISO text."""

    model: str
    version: str
    at: str
    mode: str
    files: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def passes_by_task(self) -> dict[str, tuple[int, int]]:
        """For each task, the number of attempts that passed, and the number of all attempts."""
        tries = defaultdict[str, int](int)
        passed = defaultdict[str, int](int)
        for trial in self.trials:
            tries[trial.task] += 1
            passed[trial.task] += trial.has_passed
        return {name: (passed[name], tries[name]) for name in tries}


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation from its JSON file.

    Raises `BadInput` if the file cannot be read or is not an evaluation.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evaluation)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason_of(error)}") from error
    except msgspec.MsgspecError as error:
        raise BadInput(f"{path} is not a result of refold eval: {error}") from error


def pass_at(k: int, passed: int, tries: int) -> float:
    """Return the probability that at least one of `k` attempts at a task passes.

    The result is the unbiased estimate if `passed` of `tries` attempts passed: Chen et al.
    2021, "Evaluating Large Language Models Trained on Code", equation 1.
    """
    return 1.0 - comb(tries - passed, k) / comb(tries, k)


def interval(passed: int, tries: int) -> tuple[float, float]:
    """Return the 95 % interval of the pass rate, by Wilson's formula; (0, 1) without attempts.

    Unlike simpler formulas, this one is also right for few attempts and for rates near 0 and 1.
    """
    if not tries:
        return 0.0, 1.0
    rate = passed / tries
    spread = _NORMAL_QUANTILE**2 / tries
    centre = (rate + spread / 2) / (1 + spread)
    deviation = sqrt(rate * (1 - rate) / tries + spread / (4 * tries))
    half_width = _NORMAL_QUANTILE * deviation / (1 + spread)
    return max(0.0, centre - half_width), min(1.0, centre + half_width)


def table(evaluation: Evaluation) -> Iterator[str]:
    """Yield a table for the user: a row of figures for each kind of task, then a summary."""
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
    """Return a row of the table: the figures of these attempts, after `name`."""
    passed = sum(t.has_passed for t in trials)
    count = len(trials)
    destroyed = sum(bool(t.destroyed) for t in trials)
    seconds = duration(sum(t.seconds for t in trials) / count)
    read = sum(t.input_tokens for t in trials) // count
    written = sum(t.output_tokens for t in trials) // count
    share = f"{passed}/{count}"
    return f"{name}  {share:>7}  {destroyed:>9}  {seconds:>11}  {read:>9,}  {written:>3,}"


def _summary(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines below the table: pass rates, times, tokens and cost of all attempts."""
    trials = evaluation.trials
    passed = sum(t.has_passed for t in trials)
    count = len(trials)
    low, high = interval(passed, count)
    yield f"passed: {passed} of {count}, 95 % interval {low:.0%} to {high:.0%}"
    passes_and_tries = evaluation.passes_by_task.values()
    max_k = min((tries for _, tries in passes_and_tries), default=1)
    if max_k > 1:
        rate_texts = list[str]()
        for k in (1, max_k):
            task_rates = [pass_at(k, passes, tries) for passes, tries in passes_and_tries]
            mean_rate = sum(task_rates) / len(task_rates)
            rate_texts.append(f"pass@{k} {mean_rate:.0%}")
        yield f"of {max_k} tries each: {', '.join(rate_texts)}"
    yield (
        f"time: {duration(sum(t.seconds for t in trials))}, of which "
        f"{duration(sum(t.load_seconds for t in trials))} to load the model, "
        f"{duration(sum(t.wait_seconds for t in trials))} to the first token, "
        f"{duration(sum(t.write_seconds for t in trials))} to write"
    )
    if waits := sorted(wait for t in trials for wait in t.first_tokens):
        median = waits[len(waits) // 2]
        percentile_95 = waits[ceil(0.95 * len(waits)) - 1]
        yield (
            f"first token of {len(waits)} responses: "
            f"median {duration(median)}, 95 % within {duration(percentile_95)}"
        )
    read = sum(t.input_tokens for t in trials)
    cached = sum(t.cached_tokens for t in trials)
    written = sum(t.output_tokens for t in trials)
    yield f"tokens: {read:,} in, of which {cached:,} cached; {written:,} out"
    costs = [t.cost for t in trials if t.cost is not None]
    yield f"cost: ${sum(costs):.4f}" if len(costs) == len(trials) else "cost: unknown"


def trial_line(trial: Trial) -> str:
    """Return an attempt on one line: verdict, duration, task, and the first problem if any."""
    verdict = "passed" if trial.has_passed else "failed"
    if trial.destroyed:
        verdict = "DESTROYED"
    problem = next(iter((*trial.destroyed, *trial.failures)), "")
    text = escape_to_one_line(f"{trial.task}: {problem}" if problem else trial.task)
    return f"{verdict:9} {duration(trial.seconds):>7}  {cut(text, _LINE_CELLS)}"
