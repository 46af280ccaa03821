"""A place is watched: what this machine keeps of it is what it is there, a moment later."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from refold.place.elsewhere.greeting import PlaceGreeting, PlaceNews
from tests.network.filtered import LoopbackServer
from tests.place.places import Place
from tests.place.test_round_trips import SERVE_PROGRAM

_SECONDS = 60
_HOSTILE_PROGRAM = """
from refold.place.far.server import PlaceServer, main
from refold.place.far.workspace import FarWorkspace

def flood(self, call, raw):
    now = self._describe_now()
    call.send("news", **now | {"ports": "all"})
    call.send("news", **now | {"ports": [0, 22, 70000], "head": "\\x1b[2J" * 500})
    for number in range(1000):
        call.send("news", **now | {"ports": [number + 1]})
    call.send("end")

FarWorkspace._watch = flood
from refold.place.far.server import serve_installed
serve_installed()
"""


@pytest.fixture
def open_watched(
    tmp_path: Path,
) -> Iterator[Callable[..., tuple[Place, "Queue[PlaceGreeting]"]]]:
    """Open a place behind a program. The queue gets its greetings."""
    places = list[Place]()
    (tmp_path / "work").mkdir()

    def start(program: str = SERVE_PROGRAM) -> tuple[Place, Queue[PlaceGreeting]]:
        place = Place((sys.executable, "-c", program), tmp_path / "work", tmp_path / "data")
        places.append(place)
        news = Queue[PlaceGreeting]()
        place.pipe.at_news = news.put
        assert place.pipe.greeting == news.get(timeout=_SECONDS)
        return place, news

    yield start
    for place in places:
        place.pipe.close()


Open = Callable[..., tuple[Place, "Queue[PlaceGreeting]"]]


@pytest.mark.slow  # it looks every two seconds
def test_branch_instructions_and_ports_of_a_workspace_elsewhere_are_updated(
    open_watched: Open,
) -> None:
    place, news = open_watched()
    subprocess.run(["git", "init", "-q", "-b", "mend", place.directory], check=True)
    (place.directory / "AGENTS.md").write_text("Use tabs.")
    with closing(LoopbackServer("there")) as server:
        while server.port not in (greeting := news.get(timeout=_SECONDS)).ports:
            pass

    assert greeting.head == "ref: refs/heads/mend"
    assert greeting.instructions == {"AGENTS.md": "Use tabs."}
    assert greeting.scope is not None
    assert greeting.scope[0]
    assert place.pipe.greeting.head == greeting.head


def test_a_flood_of_updates_from_elsewhere_is_dropped_and_invalid_ones_change_nothing(
    open_watched: Open,
) -> None:
    place, news = open_watched(_HOSTILE_PROGRAM)
    assert place.run("true").code == 0  # all news came before this
    first = news.get(timeout=_SECONDS)

    assert first.ports == (22,)
    assert "\x1b" not in first.head
    assert len(first.head) <= 500
    assert news.qsize() < 60
    assert len(place.pipe.greeting.ports) == 1


def test_updates_from_elsewhere_never_change_the_security_facts_of_the_greeting() -> None:
    greeting = PlaceGreeting(
        "/w",
        "one",
        "/home/me",
        "me",
        "big",
        "Linux",
        "3.11",
        "bubblewrap",
        True,
        "",
        "",
        {},
    )
    news = PlaceNews("ref: refs/heads/x", {"AGENTS.md": "Hi"}, (True, "/w", ""), (80,))

    after = news.applied_to(greeting)

    changed_paths = {*to_builtins(news)}
    assert after == replace(
        greeting, **{name: getattr(news, name) for name in changed_paths}
    )
    assert changed_paths == {"head", "instructions", "scope", "ports"}
