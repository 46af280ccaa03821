"""Measures the time of a step: from the end of an answer to the end of the next request.

It includes the shell command (`echo`). It should not grow with the length of the conversation.

Usage: python -m bench.steps [--steps 10 200 2000] [--peers]
"""

import argparse
from collections.abc import Sequence
from statistics import median

from bench import runs, table

SLOW_PEER = 200  # beyond this a peer that grows takes minutes
# How many times the floor a step may take; how many times as long as the first steps the last
# ones may take; MB of memory, and the number of steps at which they are measured.
TARGETS = {"refold": 4.0, "refold, no sandbox": 2.5}
GROWTH, MEMORY, MEMORY_AT = 1.2, 40, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 200, 2000])
    parser.add_argument("--peers", action="store_true", help="beside .peers/mini, too")
    chosen = parser.parse_args()
    report(chosen.steps, chosen.peers)


def report(lengths: Sequence[int], peers: bool) -> None:
    for turns in lengths:
        agents = [
            agent
            for agent in runs.agents(peers)
            if turns <= SLOW_PEER or agent.name in ("floor", *TARGETS)
        ]
        alternately = runs.run_alternately(agents, turns, times=3 if turns < 100 else 1)
        floor = alternately["floor"]
        table.show(
            f"own time per step, {turns} steps",
            ["median", "ratio", "computed", "ratio", "target", "first tenth", "last tenth", "growth", "target",
             "memory", "target", "kept"],
            [row(name, turns, done, floor) for name, done in alternately.items()],
        )  # fmt: skip


def median_run(completed_runs: Sequence[runs.Run]) -> float:
    return median(gap for run in completed_runs for gap in run.gaps)


def cpu_per_step(completed_runs: Sequence[runs.Run]) -> float:
    """Return the processor time of a step, in the run with the least."""
    return min(
        (run.computed[-1] - run.computed[0]) / len(run.gaps) for run in completed_runs
    )


def row(
    name: str, turns: int, completed_runs: Sequence[runs.Run], floor: Sequence[runs.Run]
) -> tuple[str, ...]:
    tenth = max(1, len(completed_runs[0].gaps) // 10)
    early = median(gap for run in completed_runs for gap in run.gaps[:tenth])
    late = median(gap for run in completed_runs for gap in run.gaps[-tenth:])
    return (
        name,
        table.ms(median_run(completed_runs)),
        table.ratio_text(
            [median(run.gaps) for run in completed_runs],
            [median(run.gaps) for run in floor],
        ),
        table.ms(cpu_per_step(completed_runs)),
        table.times(cpu_per_step(completed_runs), cpu_per_step(floor)),
        table.at_most(TARGETS.get(name)),
        table.ms(early),
        table.ms(late),
        table.times(late, early),
        table.at_most(GROWTH if name in TARGETS else None),
        f"{max(run.memory for run in completed_runs):.0f} MB",
        table.at_most(MEMORY if name in TARGETS and turns <= MEMORY_AT else None),
        f"{max(run.disk for run in completed_runs) // 1024} kB",
    )


if __name__ == "__main__":
    main()
