"""Kills of each side at random moments: nothing is lost here, nothing is done twice.

`python -m tests.place.cuts 200` makes more of them.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journal_files import find_journals
from tests.place.cuts import VICTIMS, cut

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
_CUTS = 8
_COMMANDS = 4  # of each start of refold
_STARTS = 3


@pytest.mark.parametrize("victim", VICTIMS)
def test_after_kills_of_the_program_elsewhere_or_its_connection_each_command_ran_at_most_once(
    victim: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    result = cut(tmp_path, _CUTS, victim, seed)

    assert len(result.done) + len(result.unknown) == _CUTS


def write_script(path: Path, start: int, hangs: int) -> Path:
    """Return a model that runs commands one by one; each notes that it began, and that it
    ended.
    """
    numbers = range(start, start + _COMMANDS)
    commands = (
        f"echo {one} >> began; sleep {60 if one == hangs else 0}; echo {one} >> ended"
        for one in numbers
    )
    steps = [
        *({"calls": [{"tool": "bash", "arguments": {"command": one}}]} for one in commands),
        {"text": "Done."},
    ]
    path.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return path


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_after_kills_of_refold_in_mid_call_nothing_is_lost_or_done_twice(
    tmp_path: Path, home: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, far = random.Random(seed), tmp_path / "far"
    far.mkdir()
    address = f'cmd:"env XDG_DATA_HOME={tmp_path / "data"} sh # {far}"'
    for start in range(_STARTS):
        last, first = start == _STARTS - 1, start * _COMMANDS
        hangs = -1 if last else first + chance.randrange(_COMMANDS)
        script = write_script(tmp_path / f"script{start}", first, hangs)
        again = ["-c"] if start else []
        process = subprocess.Popen(
            [
                sys.executable, "-m", "refold", *again, "-p", "Go on", "--yolo",
                "--workspace", address, "--script", script,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        began = far / "began"
        while not last and not (began.exists() and hangs in numbers(began)):
            with pytest.raises(subprocess.TimeoutExpired):  # it has not ended
                process.wait(0.02)
        if not last:
            os.kill(process.pid, signal.SIGKILL)
        output = process.communicate()[0].decode()
        assert last is (process.returncode == 0), output

    (journal,) = find_journals(home)
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    started = [one["data"]["call_id"] for one in events if one["kind"] == "Started"]
    ended = [one["data"] for one in events if one["kind"] == "Ended"]
    outcomes = [one["outcome"] for one in ended]
    began, finished = numbers(far / "began"), numbers(far / "ended")
    assert (len(began), len(finished)) == (len(set(began)), len(set(finished)))
    assert len(started) == len(set(started)) == len(ended)
    assert outcomes.count("unknown") == _STARTS - 1
    assert outcomes.count("done") == len(finished) == len(outcomes) - _STARTS + 1
    assert len(began) == len(started)
