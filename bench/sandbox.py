"""What the sandbox costs: the same small command with it and without, in turn.

Usage: python -m bench.sandbox [-n 40] [directory]
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median

import anyio

from bench import table
from refold.place.commands import ShellCommands
from refold.place.sandbox import Wish, find
from refold.values.confines import Confines

TARGET = 15.0  # milliseconds that a sandbox may add


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=40, help="runs of each (40)")
    parser.add_argument("directory", nargs="?", type=Path, default=Path.cwd())
    chosen = parser.parse_args()
    report(chosen.n, chosen.directory)


def report(times: int, directory: Path) -> None:
    root = os.path.realpath(directory)
    sandbox = find(os.environ, Wish(roots=(root,)))
    if not sandbox.confines:
        print(f"  not measured: {sandbox.notice}")
        return
    took = anyio.run(measure, times, root, ShellCommands(os.environ, sandbox))
    plain = took["plain"]
    table.show(
        f"a command that does nothing, {times} runs each, in turn (target: +{TARGET:.0f} ms)",
        ["min", "median", "more at best", "more in the middle"],
        [
            (
                name,
                table.ms(min(runs)),
                table.ms(median(runs)),
                table.ms(min(runs) - min(plain)),
                table.ms(median(runs) - median(plain)),
            )
            for name, runs in took.items()
        ],
    )


async def measure(times: int, root: str, walled: ShellCommands) -> dict[str, list[float]]:
    plain, took = ShellCommands(), dict[str, list[float]]()
    ways = {"plain": (plain, True), "looking": (walled, False), "writing": (walled, True)}
    for _ in range(times):
        for name, (commands, writes) in ways.items():
            began = time.perf_counter()
            await commands.run(
                "true", cwd=root, seconds=60, confines=Confines(writes=writes)
            )
            took.setdefault(name, []).append(time.perf_counter() - began)
    plain.close()
    walled.close()
    return took


if __name__ == "__main__":
    main()
