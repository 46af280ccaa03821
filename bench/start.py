"""Measures the time to the first request, from the last answer to the exit, and memory.

Usage: python -m bench.start [-n 10] [--peers]
"""

import argparse
import sys
from pathlib import Path
from statistics import median

from bench import pair, runs, table

# The variables that a shell sets at a Tab behind `refold agents `.
COMPLETION = (
    "_ARGCOMPLETE=1 _ARGCOMPLETE_STDOUT_FILENAME=/dev/null "
    "'COMP_LINE=refold agents ' COMP_POINT=14"
)
TARGET = 2.5  # times the floor (`bench.floor`), to the first request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each (10)")
    parser.add_argument("--peers", action="store_true", help="beside .peers/mini, too")
    chosen = parser.parse_args()
    report(chosen.n, chosen.peers)


def report(times: int, peers: bool) -> None:
    alternately = runs.run_alternately(runs.agents(peers), turns=3, times=times)
    base = alternately["floor"]
    table.show(
        f"start and end, 3 steps, {times} runs each, in turn (median; best in brackets)",
        ["start to first request", "", "ratio", "computed", "ratio", "target", "exit lag",
         "largest process"],
        [
            (
                name,
                table.ms(median(r.first_request for r in done)),
                f"({table.ms(min(r.first_request for r in done))})",
                table.ratio_text(
                    [r.first_request for r in done], [r.first_request for r in base]
                ),
                table.ms(min(r.computed[0] for r in done)),
                table.times(
                    min(r.computed[0] for r in done), min(r.computed[0] for r in base)
                ),
                table.at_most(TARGET if name.startswith("refold") else None),
                table.ms(median(r.exit_lag for r in done)),
                f"{median(r.memory for r in done):.0f} MB",
            )
            for name, done in alternately.items()
        ],
    )  # fmt: skip
    refold = Path(sys.executable).parent / "refold"
    if refold.exists():
        commands = [
            f"{sys.executable} -c pass",
            f"{refold} --version",
            f"env {COMPLETION} {refold}",
        ]
        pair.compare("saying the version, completing a name", commands, times)


if __name__ == "__main__":
    main()
