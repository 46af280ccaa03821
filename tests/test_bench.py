"""The benches still run; what they measure is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import runs

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_baseline_agent_completes_the_scripted_turns() -> None:
    floor = runs.agents()[0]

    run = runs.measure(floor, turns=4)

    assert len(run.gaps) == 4
    assert min(run.gaps) > 0


@pytest.mark.slow
def test_an_agent_that_stops_early_fails_the_measurement() -> None:
    idle = runs.Agent("idle", (sys.executable, "-c", "print('no thanks')"))

    with pytest.raises(RuntimeError, match="made 0 of 2 requests, exit 0: no thanks"):
        runs.measure(idle, turns=1)


@pytest.mark.slow
@pytest.mark.timeout(1100)
def test_the_quick_bench_runs_without_errors() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1000,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert ": exit " not in done.stdout  # of a command that is timed
    assert "  refold " in done.stdout
