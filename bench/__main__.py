"""Runs all benchmarks, which takes some minutes. Usage: python -m bench [--quick] [--peers]

On a busy machine, `chrt -f 20 python -m bench` lets the measured programs run before others. It
needs the right to set real-time priorities.
"""

import argparse
import os
import platform
from pathlib import Path

from bench import (
    checkpoints,
    growth,
    journal,
    leaves,
    listing,
    mcp_servers,
    permissions,
    places,
    prompt,
    recursion,
    resuming,
    sandbox,
    screens,
    sessions,
    start,
    steps,
    wires,
    working_day,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs, short sessions")
    parser.add_argument("--peers", action="store_true", help="beside .peers/mini, too")
    chosen = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}"
    )
    start.report(3 if chosen.quick else 10, chosen.peers)
    prompt.report(3 if chosen.quick else 10)
    mcp_servers.report(1 if chosen.quick else 10)
    steps.report([10, 50] if chosen.quick else [10, 200, 2000], chosen.peers)
    permissions.report(10 if chosen.quick else 100)
    if not chosen.quick:
        working_day.report()
    sandbox.report(10 if chosen.quick else 40, Path.cwd())
    checkpoints.report(2_000 if chosen.quick else 20_000, 3 if chosen.quick else 20)
    places.report(0.08, 2 if chosen.quick else 5)
    listing.report(8_000 if chosen.quick else 80_000, 3 if chosen.quick else 5)
    wires.report(3 if chosen.quick else 10, 2_000 if chosen.quick else 20_000)
    leaves.report(200 if chosen.quick else 1_000)
    recursion.report("", 8, 100 if chosen.quick else 1_000)
    screens.report(
        2 if chosen.quick else 5, 1_000 if chosen.quick else 10_000, 23_000, 5_000
    )
    sessions.report(500 if chosen.quick else 5_000, 12, 3 if chosen.quick else 7)
    resuming.report(3 if chosen.quick else 10, 2_200 if chosen.quick else 22_000)
    growth.report(1 if chosen.quick else 3, quick=chosen.quick)
    journal.report(1_000 if chosen.quick else 10_000, 6_000 if chosen.quick else 60_000)


if __name__ == "__main__":
    main()
