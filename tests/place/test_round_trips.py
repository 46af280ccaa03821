"""How many requests a step makes in a place: a slow connection costs a round trip for each."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from refold.place.elsewhere.place_files import PlaceFiles
from refold.tools.find import glob
from refold.tools.grep import grep
from tests.place.places import WRITING_CONFINEMENT, Place

# As `refold place --stdio` does: nothing is sent and rewritten.
SERVE_PROGRAM = "from refold.place.far.server import serve_installed; serve_installed()"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("old")
    argv = sys.executable, "-c", SERVE_PROGRAM
    place = Place(
        argv,
        tmp_path / "work",
        tmp_path / "data",
        {"profile": "off", "network": False, "user_namespaces": False},
    )
    place.files = PlaceFiles(place.pipe, os.path.realpath(place.directory))
    assert place.pipe.greeting.root == os.path.realpath(place.directory)
    yield place
    place.pipe.close()


def test_elsewhere_a_glob_a_grep_and_a_command_need_one_round_trip_and_an_edit_two(
    place: Place,
) -> None:
    files, counts = place.files, dict[str, int]()

    def edit() -> None:
        real = files.real("a.txt")
        own = files.only([files.real("a.txt")])
        assert own.kind(own.real("a.txt")) == "file"
        own.write(real, own.read(real) + b"!", expect=sha256(b"old").hexdigest())

    async def main() -> None:
        async def count(name: str, step: Callable[[], Awaitable[object]]) -> None:
            before = place.pipe.requests
            await step()
            counts[name] = place.pipe.requests - before

        await count("glob", lambda: glob.run("*.txt", files=files))
        if place.commands.has("rg"):
            await count(
                "grep", lambda: grep.run("old", files=files, commands=place.commands)
            )
        await count("edit", lambda: anyio.to_thread.run_sync(edit))
        run = place.commands.run
        await count(
            "command",
            lambda: run(
                "true", cwd=files.roots[0], seconds=30, confines=WRITING_CONFINEMENT
            ),
        )

    anyio.run(main)

    assert counts == {"glob": 1, "edit": 2, "command": 1} | (
        {"grep": 1} if "grep" in counts else {}
    )
    assert (place.directory / "a.txt").read_text() == "old!"


def test_changes_since_the_last_snapshot_elsewhere_need_no_further_round_trip(
    place: Place,
) -> None:
    async def main() -> int:
        before = await place.snapshots.take()
        (place.directory / "b.txt").write_text("new")
        place.snapshots.forget()
        after = await place.snapshots.take()
        requests = place.pipe.requests
        changes = place.snapshots.changes(before.trees, after.trees)
        assert [(change.path, change.kind) for change in changes] == [
            (str(place.directory.resolve() / "b.txt"), "created")
        ]
        return place.pipe.requests - requests

    assert anyio.run(main) == 0
