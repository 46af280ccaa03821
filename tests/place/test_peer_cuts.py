"""Two hundred cuts at random moments: nothing is done twice, and what is unknown is reported so."""

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from refold.errors import ConnectionLost
from tests.place.places import Place

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
_CUTS = 200
_MAX_DELAY_SECONDS = 0.12  # a command takes about a third of that


def connect_again(place: Place) -> None:
    """The kill may be noticed only when this is sent. The next one connects."""
    with suppress(ConnectionLost):
        place.run("true")
    assert place.run("true").code == 0


def test_after_two_hundred_kills_of_the_far_process_each_command_ran_at_most_once(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, number = random.Random(seed), tmp_path / "pid"
    place = Place(
        ("/bin/sh", "-c", f"echo $$ > {number}; exec sh"), tmp_path, tmp_path / "data"
    )
    done, unknown = set[int](), set[int]()
    for cut in range(_CUTS):
        connect_again(place)
        pid = int(number.read_text())
        killer = threading.Timer(
            chance.random() * _MAX_DELAY_SECONDS, os.kill, (pid, signal.SIGKILL)
        )
        killer.start()
        try:
            finished = place.run(f"echo {cut} >> began; sleep 0.02; echo {cut} >> ended")
        except ConnectionLost:
            unknown.add(cut)
        else:
            assert finished.code == 0
            done.add(cut)
        killer.join()
    place.pipe.close()

    began = [int(line) for line in (tmp_path / "began").read_text().split()]
    ended = [int(line) for line in (tmp_path / "ended").read_text().split()]
    assert (len(began), len(ended)) == (len(set(began)), len(set(ended)))
    assert done <= set(ended)
    assert set(ended) <= done | unknown
    assert min(len(done), len(unknown)) > 0
