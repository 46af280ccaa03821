"""Measures what the runner of commands adds to `bash -c` and to bubblewrap.

Usage: python -m bench.sandbox [-n 40] [directory]
"""

import argparse
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import anyio

from bench import table
from refold.place.commands import ShellCommands
from refold.place.port import NOTHING_MORE, CommandExtras
from refold.place.sandbox import Sandbox, SandboxConfig, find_sandbox
from refold.values.tools import Confinement

# A command with variables of its own gets a sandbox of its own, which is not set up ahead.
_OWN = CommandExtras(environ={"OWN": "1"})
_ANSWER_SECONDS = 0.1  # seconds that a quick model takes to answer
TARGET = 2.0  # milliseconds that the runner may add
# With which bare command each way is compared.
BESIDE = {
    "plain": "bash -c",
    "reading": "bubblewrap, reading",
    "writing": "bubblewrap, writing",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=40, help="runs of each (40)")
    parser.add_argument("directory", nargs="?", type=Path, default=Path.cwd())
    chosen = parser.parse_args()
    report(chosen.n, chosen.directory)


def report(times: int, directory: Path) -> None:
    root = os.path.realpath(directory)
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=(root,)))
    if not sandbox.confines:
        print(f"  not measured: {sandbox.notice}")
        return
    took = anyio.run(measure, times, root, sandbox)
    table.show(
        f"a command that does nothing, {times} runs each, in turn",
        ["min", "median", "beside", "more at best", "more in the middle", "target"],
        [row(name, runs, took) for name, runs in took.items()],
    )


def row(
    name: str, runs: Sequence[float], seconds: Mapping[str, Sequence[float]]
) -> tuple[str, ...]:
    least, middle = table.ms(min(runs)), table.ms(median(runs))
    beside = BESIDE.get(name, "")
    if not beside:
        return (name, least, middle, "", "", "", "")
    bare = seconds[beside]
    more = min(runs) - min(bare), median(runs) - median(bare)
    return (name, least, middle, beside, *map(table.ms, more), f"≤{TARGET:g} ms")


async def measure(times: int, root: str, sandbox: Sandbox) -> dict[str, list[float]]:
    walled = ShellCommands(os.environ, lambda: sandbox)
    plain, took = ShellCommands(), dict[str, list[float]]()
    ways = {
        "plain": (plain, True, NOTHING_MORE),
        "writing": (walled, True, _OWN),
        "reading": (walled, False, _OWN),
        "reading, after an answer": (walled, False, _OWN),
        "the same, set up ahead": (walled, False, NOTHING_MORE),
    }
    launches = [sandbox.launch(root, Confinement(writes=w)) for w in (False, True)]
    bare: dict[str, Sequence[str]] = {"bash -c": ()}
    for name, launch in zip(("reading", "writing"), launches, strict=True):
        bare[f"bubblewrap, {name}"] = launch.arguments
    for _ in range(times):
        for name, words in bare.items():
            took.setdefault(name, []).append(run_once(words))
        for name, (commands, writes, extras) in ways.items():
            if "ahead" in name or "answer" in name:
                await anyio.sleep(_ANSWER_SECONDS)
            began = time.perf_counter()
            confines = Confinement(writes=writes)
            await commands.run(
                "true", cwd=root, seconds=60, confines=confines, extras=extras
            )
            took.setdefault(name, []).append(time.perf_counter() - began)
    for launch in launches:
        launch.after()
    plain.close()
    walled.close()
    return took


def run_once(words: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run([*words, "bash", "-c", "true"], check=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
