"""Measures `refold map`: the first answer, the whole map, and updates after ten changed files.

    python -m bench.repository_map DIRECTORY… [-n 5]

Each directory is a git repository. Ten of its files get a line at their end, and are restored afterwards. The map is in a home of
its own. Times are those of the command, from its start to its end; memory is that of its largest process.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench import table

_CHANGED_FILES = 10
_SUFFIXES = (".py", ".c", ".h", ".js", ".ts", ".go", ".rs", ".java")
_SETTLE_SECONDS = (
    0.2  # after a change: a file that changed just before it is read is read again
)


class Cost(Struct, frozen=True):
    seconds: float
    processor_seconds: float
    memory_bytes: int
    output: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY")
    parser.add_argument("-n", type=int, default=5, help="runs with ten changed files (5)")
    parser.add_argument("--home", help="where maps are kept; else they are made anew")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as new:
        report(chosen.directories, chosen.n, chosen.home or new)


def report(directories: Sequence[Path], times: int, home: str) -> None:
    rows = [measure(directory.resolve(), times, home) for directory in directories]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"refold map, {times} runs with changed files, seconds of the clock / of the processors, load {load}"
    heads = (
        "files",
        "first answer",
        "whole",
        "memory",
        "disk",
        "none changed",
        f"{_CHANGED_FILES} changed",
    )
    table.show(title, heads, rows)


def measure(directory: Path, times: int, home: str) -> Sequence[object]:
    first = run_map(directory, home, "show", "main")
    whole = run_map(directory, home, "refresh", "--json")
    state = json.loads(whole.output)
    unchanged = [run_map(directory, home, "refresh") for _ in range(times)]
    changed = list[Cost]()
    for number in range(times):
        with changed_files(directory, number):
            changed.append(run_map(directory, home, "refresh", "--json"))
            assert json.loads(changed[-1].output)["read"] >= _CHANGED_FILES
        time.sleep(_SETTLE_SECONDS)
        run_map(directory, home, "refresh")
    return (
        directory.name,
        f"{state['known']:,}",
        _seconds_text([first]),
        _seconds_text([whole]),
        f"{whole.memory_bytes / 1e6:.0f} MB",
        f"{state['bytes'] / 1e6:.0f} MB",
        _seconds_text(unchanged),
        _seconds_text(changed),
    )


def _seconds_text(costs: Sequence[Cost]) -> str:
    seconds = median(cost.seconds for cost in costs)
    return f"{seconds:.2f} / {median(cost.processor_seconds for cost in costs):.2f} s"


def run_map(directory: Path, home: str, *arguments: str) -> Cost:
    environ = {**os.environ, "REFOLD_HOME": home, "REFOLD_NO_BACKGROUND": "1"}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-m", "refold", "map", *arguments],
        cwd=directory, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, processor, after.ru_maxrss * 1024, result.stdout)


@contextmanager
def changed_files(directory: Path, seed: int) -> Generator[Sequence[Path]]:
    """Add a line to ten source files that git tracks. Restore them when the block ends."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=directory, capture_output=True, text=True, check=True
    )
    names = [name for name in listing.stdout.split("\0") if name.endswith(_SUFFIXES)]
    paths = [directory / name for name in random.Random(seed).sample(names, _CHANGED_FILES)]
    contents = {path: path.read_bytes() for path in paths if path.is_file()}
    try:
        for path, content in contents.items():
            path.write_bytes(content + b"\n")
        time.sleep(_SETTLE_SECONDS)
        yield paths
    finally:
        for path, content in contents.items():
            path.write_bytes(content)


if __name__ == "__main__":
    main()
