"""Measures what checkpoints add to a step that changes a file, in a repository of many files.

They are compared with `git status`, the least that it costs to look at all files.

Usage: python -m bench.checkpoints [--files 20000] [--times 20]
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import anyio

from bench import table
from refold.place.checkpoints import Checkpoints

LONG_AGO = 1.7e9  # when the files were changed: most files of a repository are older


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--files", type=int, default=20_000, help="in the repository (20000)"
    )
    parser.add_argument("--times", type=int, default=20, help="steps (20)")
    chosen = parser.parse_args()
    report(chosen.files, chosen.times)


def report(count: int, times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="refold-bench-", dir=Path.cwd()) as directory:
        root, store = Path(directory) / "work", Path(directory) / "data" / "checkpoints"
        make_repository(root, count)
        rows = anyio.run(take_snapshots, root, store, times)
    table.show(
        f"checkpoints, {count} files, {times} steps", ["median", "max", "ratio"], rows
    )


async def take_snapshots(root: Path, store: Path, times: int) -> list[tuple[str, ...]]:
    checkpoints = Checkpoints([root], store, os.environ, "bench")
    first = await measure_seconds(checkpoints)
    another = await measure_seconds(Checkpoints([root], store, os.environ, "another"))
    status, nothing, step = list[float](), list[float](), list[float]()
    back = list[float]()
    for n in range(times):
        status.append(time_status(root))
        await measure_seconds(checkpoints)  # it finds the files that were restored
        nothing.append(await measure_seconds(checkpoints))
        before = await checkpoints.take()
        (root / "d1" / "s1" / "f1.py").write_text(f"changed {n}\n")
        step.append(await measure_seconds(checkpoints))
        now, began = await checkpoints.take(), time.perf_counter()
        await checkpoints.restore(now.trees, before.trees)
        back.append(time.perf_counter() - began)
    base = median(status)
    alone = [("the first look of all", first), ("the first of another session", another)]
    many = [("git status", status), ("nothing changed", nothing), ("one file changed", step),
            ("one file brought back", back)]  # fmt: skip
    return [
        *((name, table.ms(took), table.ms(took), table.times(took, base)) for name, took in alone),
        *((name, table.ms(median(all_)), table.ms(max(all_)), table.times(median(all_), base))
          for name, all_ in many),
    ]  # fmt: skip


async def measure_seconds(checkpoints: Checkpoints) -> float:
    checkpoints.note_change()
    began = time.perf_counter()
    await checkpoints.take()
    return time.perf_counter() - began


def time_status(root: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        ("git", "status", "--porcelain"), cwd=root, capture_output=True, check=True
    )
    return time.perf_counter() - began


def make_repository(root: Path, count: int) -> None:
    """Make a repository with ten files in each of its folders."""
    for n in range(count):
        place = root / f"d{n // 100}" / f"s{n // 10 % 10}" / f"f{n % 10}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"line {n}\n" * 40)
        os.utime(place, (LONG_AGO, LONG_AGO))
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    for order in (("init", "-q"), ("add", "."),
                  ("-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-qm", "all")):  # fmt: skip
        subprocess.run(("git", *order), cwd=root, check=True, capture_output=True)


if __name__ == "__main__":
    main()
