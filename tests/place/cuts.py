"""Kills a place or its connection at random moments, and checks the commands.

No command may run twice, and each command that ran must be reported as done or as unknown.
`test_peer_cuts` makes a few kills. By hand, many can be made:

    python -m tests.place.cuts 200 [SEED]
"""

import os
import random
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bench.relay import relay_argv
from refold.errors import ConnectionLost
from tests.place.places import Place

VICTIMS: tuple[Literal["place", "connection"], ...] = "place", "connection"
_MAX_DELAY_SECONDS = 0.12  # a command takes about a third of this time


class CutResult(Struct):
    """The numbers of commands that are known to have ended, and of unknown ones."""

    done: set[int]
    unknown: set[int]


def cut(folder: Path, count: int, victim: str, seed: int) -> CutResult:
    """Kill the program in the place, or the connection, `count` times, each during a command.

    Raises `AssertionError` if a command ran twice, or ran without being reported.
    """
    chance, number = random.Random(seed), folder / "pid"
    if victim == "place":
        argv = "/bin/sh", "-c", f"echo $$ > {number}; exec sh"
    else:
        argv = relay_argv(0, number, "sh")
    place = Place(argv, folder, folder / "data")
    result = CutResult(set(), set())
    for index in range(count):
        _connect_again(place)
        pid = int(number.read_text())
        killer = threading.Timer(
            chance.random() * _MAX_DELAY_SECONDS, os.kill, (pid, signal.SIGKILL)
        )
        killer.start()
        try:
            finished = place.run(
                f"echo {index} >> began; sleep 0.02; echo {index} >> ended"
            )
        except ConnectionLost:
            result.unknown.add(index)
        else:
            assert finished.code == 0
            result.done.add(index)
        killer.join()
    _connect_again(place)
    place.pipe.close()
    _check(folder, result)
    return result


def _check(folder: Path, result: CutResult) -> None:
    began, ended = (_lines(folder / name) for name in ("began", "ended"))
    assert (len(began), len(ended)) == (len(set(began)), len(set(ended)))
    assert result.done <= set(ended)
    assert set(began) <= result.done | result.unknown


def _lines(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _connect_again(place: Place) -> None:
    """Connect again. The first command may only notice the kill; then the second connects."""
    with suppress(ConnectionLost):
        place.run("true")
    assert place.run("true").code == 0


def main() -> None:
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    for victim in VICTIMS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{count} kills of the {victim}, seed {seed}", flush=True)
            result = cut(Path(folder), count, victim, seed)
        print(f"{len(result.done)} ended, {len(result.unknown)} unknown, none twice")


if __name__ == "__main__":
    main()
