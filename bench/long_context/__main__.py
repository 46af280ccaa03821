"""Answers tasks with computed answers flat, recursively, by code alone and after a search.

    python -m bench.long_context [--model NAME | --error-rate 0.02] [--sizes short middle] [-n 3]
    python -m bench.long_context --router

Without --model, a stand-in answers, whose answers are wrong at the given rate. --price names the model of the catalogue
whose prices are used for the tokens.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import anyio
import msgspec

from bench.long_context import code_questions, needles, router, rows
from bench.long_context.outcomes import report, report_errors
from bench.long_context.stand_in import StandIn
from bench.long_context.task import MakeTask, Task
from bench.long_context.ways import WAYS, Engine, Outcome, Way, ask
from refold.errors import RefoldError
from refold.provider.prices import Rates, rates

SIZES = {"short": 300, "middle": 12_000, "long": 60_000, "huge": 400_000}
WINDOW_TOKENS = 100_000  # the window of the stand-in
DEFAULT_PRICE = "anthropic/claude-haiku-4-5"


def makers(kinds: Sequence[str] = ()) -> Sequence[MakeTask]:
    history = (code_questions.changed,) if code_questions.has_history() else ()
    everything = (*needles.MAKERS, *rows.MAKERS, *code_questions.MAKERS, *history)
    return [make for make in everything if not kinds or make.__name__ in kinds]


def tasks(sizes: Sequence[str], count: int, kinds: Sequence[str] = ()) -> Iterator[Task]:
    for size in sizes:
        for make in makers(kinds):
            for number in range(count):
                yield make(Random(f"{make.__name__} {size} {number}"), size, SIZES[size])


async def answer_all(
    some: Sequence[Task], ways: Sequence[Way], engine: Engine, log: Path | None = None
) -> Sequence[Outcome]:
    outcomes = list[Outcome]()
    for task in some:
        for way in ways:
            with tempfile.TemporaryDirectory(prefix="refold-bench-") as home:
                outcomes.append(await _answer(task, way, engine, Path(home)))
            if log is not None:
                _write_line(log, outcomes[-1])
    return outcomes


async def _answer(task: Task, way: Way, engine: Engine, home: Path) -> Outcome:
    outcome = Outcome(task, way, is_right=False, problem="out of time")
    with anyio.move_on_after(engine.seconds):
        try:
            outcome = await ask(task, way, engine, home)
        except RefoldError as error:
            outcome = Outcome(task, way, is_right=False, problem=str(error))
    return outcome


def _write_line(log: Path, outcome: Outcome) -> None:
    line = msgspec.to_builtins(outcome)
    del line["task"]["material"]
    with log.open("a") as file:
        file.write(json.dumps(line, default=sorted) + "\n")


def price_of(model: str) -> Rates | None:
    provider, _, name = model.partition("/")
    return rates(provider, name)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.long_context",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default="", metavar="PROVIDER/MODEL", help="else the stand-in")
    add(
        "--window",
        type=int,
        default=WINDOW_TOKENS,
        help=f"tokens of its window ({WINDOW_TOKENS:,})",
    )
    add("--error-rate", type=float, default=0.0, metavar="RATE", help="of the stand-in (0)")
    add("--seed", type=int, default=0, help="of its errors (0)")
    add(
        "--sizes",
        nargs="+",
        choices=SIZES,
        default=list(SIZES),
        metavar="SIZE",
        help=" ".join(SIZES),
    )
    add(
        "--tokens",
        type=int,
        default=0,
        metavar="N",
        help="tokens of the generated material, instead of those of its size",
    )
    add(
        "--kinds",
        nargs="+",
        default=(),
        choices=[make.__name__ for make in makers()],
        metavar="KIND",
        help=" ".join(make.__name__ for make in makers()),
    )
    add("--ways", nargs="+", choices=WAYS, default=WAYS, metavar="WAY", help=" ".join(WAYS))
    add("-n", type=int, default=3, help="tasks of each kind and size (3)")
    add("--seconds", type=float, default=300.0, help="for one answer (300)")
    add(
        "--price",
        default=DEFAULT_PRICE,
        metavar="PROVIDER/MODEL",
        help=f"({DEFAULT_PRICE})",
    )
    add("--log", type=Path, metavar="FILE", help="append each outcome as a JSON line")
    add(
        "--router",
        action="store_true",
        help="score the router on its labelled tasks, and nothing else",
    )
    chosen = parser.parse_args()
    if chosen.router:
        router.report()
        return
    if chosen.tokens:
        SIZES.update(dict.fromkeys(chosen.sizes, chosen.tokens))
    provider = None if chosen.model else StandIn(chosen.error_rate, chosen.seed)
    engine = Engine(chosen.window, chosen.model, provider, chosen.seconds)
    some = list(tasks(chosen.sizes, chosen.n, chosen.kinds))
    before = os.getloadavg()[0]
    outcomes = anyio.run(answer_all, some, chosen.ways, engine, chosen.log)
    title = chosen.model or f"a stand-in that errs at {chosen.error_rate:.0%}"
    report(outcomes, engine, price_of(chosen.price), title)
    if chosen.error_rate:
        report_errors(outcomes, chosen.error_rate)
    print(
        f"\nload {before:.1f} at the start, {os.getloadavg()[0]:.1f} at the end; prices of {chosen.price}"
    )


if __name__ == "__main__":
    main()
