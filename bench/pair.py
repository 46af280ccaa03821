"""Runs two commands in turn, N times each, and compares their times.

Usage: python -m bench.pair [-n 20] 'first command' 'second command'
"""

import argparse
import shlex
import subprocess
import time

from bench import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="runs of each (20)")
    parser.add_argument("first")
    parser.add_argument("second")
    chosen = parser.parse_args()
    compare("whole run", [chosen.first, chosen.second], chosen.n)


def compare(title: str, commands: list[str], times: int) -> None:
    took: dict[str, list[float]] = {command: [] for command in commands}
    for _ in range(times):
        for command in commands:
            took[command].append(run_once(command))
    table.compare(f"{title}, {times} runs each, in turn", took)


def run_once(command: str) -> float:
    began = time.monotonic()
    done = subprocess.run(
        shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    took = time.monotonic() - began
    if done.returncode:
        text = done.stderr.decode(errors="replace")[-500:]
        print(f"  {command}: exit {done.returncode}: {text}")
    return took


if __name__ == "__main__":
    main()
