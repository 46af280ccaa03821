"""Measures how long code waits for many model calls of 100 ms each, fifty at once.

The ideal is the time if only the models took time. One measured way asks all questions in one
call. The other way makes calls of fifty questions, and each call waits for its last answer.

Usage: python -m bench.leaves [--leaves 1000]
"""

import argparse
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio

from bench import table
from refold.agents.profile import CodeLimits
from refold.engine.world import Model, World
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.conversation import Conversation
from refold.provider.port import Delta, Done, Request, TextDelta
from refold.rlm.call_context import CallContext
from refold.rlm.leaf_calls import Leaves, ModelQuestion
from refold.rlm.rate_limit import RateLimit
from refold.session.recorder import Recorder
from refold.testing.providers import ScriptedProvider
from refold.values.usage import Usage

SECONDS = 0.1
AT_ONCE = 50


class Answering:
    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        await anyio.sleep(SECONDS)
        yield TextDelta("yes")
        yield Done(Usage(fresh=100, output=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=1_000)
    report(parser.parse_args().leaves)


def report(many: int) -> None:
    ideal = many / AT_ONCE * SECONDS
    waits = [("nothing but the waiting", anyio.run(_measure_without_model, many))]
    waits.append(("one call", anyio.run(_measure_recorded, [many])))
    waits.append(
        (f"calls of {AT_ONCE}", anyio.run(_measure_recorded, [AT_ONCE] * (many // AT_ONCE)))
    )
    table.show(
        f"{many} models that answer in {SECONDS * 1000:.0f} ms, {AT_ONCE} at once",
        ["time", "of ideal"],
        [("ideal", table.ms(ideal), table.times(ideal, ideal))]
        + [(name, table.ms(took), table.times(took, ideal)) for name, took in waits],
    )


async def _measure_without_model(many: int) -> float:
    slots = anyio.CapacityLimiter(AT_ONCE)

    async def wait() -> None:
        async with slots:
            await anyio.sleep(SECONDS)

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(many):
            group.start_soon(wait)
    return time.perf_counter() - began


async def _measure_recorded(batches: Sequence[int]) -> float:
    """Measure with a journal in a file, as a session has one."""
    code_limits = CodeLimits(
        fan_out=max(batches), at_once=AT_ONCE, depth=1, cell=120, call=120
    )
    aide = Model(Answering(), "bench/leaf", 100_000, lambda *_: 0.001)
    world = World(Model(ScriptedProvider()), helper_model=lambda: aide)
    with tempfile.TemporaryDirectory() as home:
        record = Recorder(JournalDirectory(Path(home)).store("bench"))
        await record.open()
        leaves, within = (
            Leaves(record, lambda: world, code_limits, RateLimit()),
            CallContext("call-0", Conversation()),
        )
        began = time.perf_counter()
        for batch in batches:
            questions = [ModelQuestion(f"text {n}", "Is it?") for n in range(batch)]
            answers = await leaves.ask_all(questions, within)
            assert all(answer == "yes" for answer in answers)
        took = time.perf_counter() - began
        await record.close()
    return took


if __name__ == "__main__":
    main()
