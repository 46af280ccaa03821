"""Compares starts without MCP servers, with sixteen, and with sixteen slow ones (3 s).

Their tools are known from an earlier start, as in each start of a user after the first.

Usage: python -m bench.mcp_servers [-n 10]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import runs, table

SERVERS = 16
MODES = {"no server": "", "16 servers": "plain", "16 servers of 3 s": "slow"}
_SERVER = runs.ROOT / "tests" / "mcp" / "fake_server.py"
TARGET = 1.05  # times a start without servers, to the first request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each (10)")
    report(parser.parse_args().n)


def report(times: int) -> None:
    agent = next((agent for agent in runs.agents() if agent.name == "refold"), None)
    if agent is None:
        return
    with tempfile.TemporaryDirectory(prefix="refold-bench-", dir=Path.home()) as directory:
        agents = [
            replace(_prepare(agent, Path(directory, mode or "none"), mode), name=name)
            for name, mode in MODES.items()
        ]
        rows: dict[str, list[runs.Run]] = {name: [] for name in MODES}
        for _ in range(times):
            for chosen in agents:
                rows[chosen.name].append(runs.measure(chosen, turns=3))
    base = rows["no server"]
    table.show(
        f"a start with MCP servers, 3 steps, {times} runs each, in turn (median)",
        ["start to first request", "ratio", "target", "computed", "ratio", "exit lag"],
        [
            (
                name,
                table.ms(median(run.first_request for run in measured)),
                table.times(
                    median(run.first_request for run in measured),
                    median(run.first_request for run in base),
                ),
                table.at_most(None if measured is base else TARGET),
                table.ms(min(run.computed[0] for run in measured)),
                table.times(
                    min(run.computed[0] for run in measured),
                    min(run.computed[0] for run in base),
                ),
                table.ms(median(run.exit_lag for run in measured)),
            )
            for name, measured in rows.items()
        ],
    )


def _prepare(agent: runs.Agent, home: Path, mode: str) -> runs.Agent:
    """Make a home with servers of this mode whose tools are known; "": without servers."""
    home.mkdir()
    server = {"command": sys.executable, "args": [str(_SERVER), mode]}
    servers = {f"s{number}": server for number in range(SERVERS)} if mode else {}
    (home / "mcp_servers.json").write_text(json.dumps({"mcpServers": servers}))
    chosen = replace(agent, extra=(*agent.extra, ("REFOLD_HOME", str(home))))
    # A search for tools waits for all servers, whose tools are known from then on.
    search = {"calls": [{"tool": "tool_search", "arguments": {"query": "echo"}}]}
    script = home / "script"
    script.write_text(f"{json.dumps(search)}\n{json.dumps({'text': 'Done.'})}\n")
    refold = Path(sys.executable).parent / "refold"
    subprocess.run(
        (refold, "-p", "Go.", "--yolo", "--script", script),
        cwd=home,
        env=runs.environment(chosen, 0, home),
        capture_output=True,
        check=True,
    )
    return chosen


if __name__ == "__main__":
    main()
