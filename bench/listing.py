"""Measures how long it takes to list a large workspace, the first time and again.

It is compared with `rg --files`, the least that a separate program takes.

Usage: python -m bench.listing [--files 80000] [--times 5]
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import anyio

from bench import table
from refold.client.workspace import file_names
from refold.testing.places import ToolDirectory
from refold.tools.find import glob

FILES_PER_DIRECTORY = 16  # in each directory
TARGET = 100  # milliseconds for the second time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=80_000)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    report(chosen.files, chosen.times)


def report(count: int, times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="refold-bench-", dir=Path.cwd()) as directory:
        root = Path(directory)
        grow(root, count)
        time.sleep(0.1)  # directories that changed just now would be read again
        ways: dict[str, Callable[[], object]] = {
            "names for @": lambda: sum(1 for _ in file_names(directory)),
            "glob": lambda: anyio.run(find, root),
        }
        if rg := shutil.which("rg"):
            ways["rg --files"] = lambda: subprocess.run(
                [rg, "--files", "--hidden", root], stdout=subprocess.DEVNULL, check=False
            )
        rows = [(name, *figures(way, times)) for name, way in ways.items()]
    table.show(f"listing {count} files", ["first", "again", "target"], rows)


def grow(root: Path, count: int) -> None:
    for number in range(count // FILES_PER_DIRECTORY):
        folder = root / f"d{number % 100}" / f"s{number}"
        folder.mkdir(parents=True)
        for index in range(FILES_PER_DIRECTORY):
            (folder / f"f{index}.py").touch()


async def find(root: Path) -> None:
    await ToolDirectory(root).use(glob, {"pattern": "d7/**/f3.py"})


def figures(way: Callable[[], object], times: int) -> tuple[str, str, str]:
    took = list[float]()
    for _ in range(times + 1):
        began = time.perf_counter()
        way()
        took.append(time.perf_counter() - began)
    return table.ms(took[0]), table.ms(median(took[1:])), f"≤{TARGET} ms"


if __name__ == "__main__":
    main()
