"""A link below REFOLD_HOME is not written through, whatever it replaces."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.console.history import open_history
from refold.memory.project import PendingSessions
from tests.cli.running import LONG, call, command, script

SAID = "a link stands in its place"


class House:
    """REFOLD_HOME with one session in it, a workspace, and a place outside of both."""

    def __init__(self, here: Path) -> None:
        self.home, self.work, self.outside = here / "home", here / "work", here / "outside"
        self.work.mkdir()
        self.outside.mkdir()
        write = call("write_file", path="a.txt", content="a")
        self.script = script(here, write, {"text": "Done."})
        done = self.run("-p", "go")
        assert done[0] == 0, done
        (self.session,) = (self.home / "sessions").glob("2*")

    def run(self, *arguments: str) -> tuple[int, str]:
        rights = ("--script", self.script, "--allow", "write_file")
        completed_process = subprocess.run(
            command(*arguments, *rights) if arguments[0] == "-p" else command(*arguments),
            cwd=self.work,
            env={**os.environ, "REFOLD_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONG,
            check=False,
        )
        return completed_process.returncode, completed_process.stderr.decode()

    def replace_by_link(self, name: str) -> Path:
        """What lay there lies outside now, and a link to it in its place."""
        place = self.session / name if not name.startswith("/") else self.home / name[1:]
        away = self.outside / place.name
        if not place.exists():
            away.mkdir()
            (away / "1234.part").write_text("half of something")
        else:
            place.rename(away)
        place.symlink_to(away)
        return away

    def outside_now(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.outside.rglob("*")) if path.is_file())
        return {str(file): file.read_bytes() for file in files}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", "pen", "blobs"])
def test_a_session_directory_that_contains_a_symlink_is_not_resumed(
    house: House, name: str
) -> None:
    house.replace_by_link(name)
    before = house.outside_now()

    code, text = house.run("-p", "more", "-r", house.session.name)

    assert (code, text.count(SAID), text.count("\n")) == (1, 1, 1)
    assert str(house.session) in text
    assert house.outside_now() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", "", "/sessions"])
def test_sessions_subcommands_refuse_a_symlinked_session(house: House, name: str) -> None:
    id_ = house.session.name
    house.replace_by_link(name or f"/sessions/{id_}")
    before = house.outside_now()

    for words in (("show", id_), ("check", id_), ("export", id_), ("delete", id_, "--yes")):
        code, text = house.run("sessions", *words)
        assert (code, text.count("\n")) == (1, 1)
        assert "is a link, and no session is read, copied or deleted through one" in text
    assert house.outside_now() == before


@pytest.mark.slow
def test_symlinked_session_and_sessions_directories_are_refused(house: House) -> None:
    house.replace_by_link(f"/sessions/{house.session.name}")
    one = house.run("-p", "more", "-r", house.session.name)
    house.replace_by_link("/sessions")
    before = house.outside_now()
    fresh = house.run("-p", "anew")

    assert [code for code, _ in (one, fresh)] == [1, 1]
    assert SAID in one[1]
    assert SAID in fresh[1]
    assert house.outside_now() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["checkpoints", "checkpoints/*", "checkpoints/*/objects", "checkpoints/*/objects/??",
             "checkpoints/*/sessions", "checkpoints/*/info"],
)  # fmt: skip
def test_checkpoints_are_not_written_through_a_symlink(house: House, name: str) -> None:
    (first, *_) = sorted(house.home.glob(name))
    house.replace_by_link(f"/{first.relative_to(house.home)}")
    (house.work / "a.txt").unlink()  # else writing it unread fails, without a checkpoint
    before = house.outside_now()

    code, text = house.run("-p", "anew")

    assert (code, SAID in text) == (0, True)
    assert house.outside_now() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["refold.log", "catalogue.sqlite"])
def test_a_symlinked_log_or_catalogue_is_not_written_through(
    house: House, name: str
) -> None:
    house.run("sessions", "list")
    house.replace_by_link(f"/{name}")
    before = house.outside_now()

    assert house.run("sessions", "list")[0] == 0
    assert house.run("-p", "anew")[0] == 0
    assert house.outside_now() == before


@pytest.mark.slow
def test_refold_home_may_be_a_symlink(house: House) -> None:
    house.home.rename(house.outside / "home")
    house.home.symlink_to(house.outside / "home")

    assert house.run("-p", "more", "-r", house.session.name)[0] == 0


def _history(place: Path) -> None:
    open_history(place, str, str).store_string("words")


def _pending(place: Path) -> None:
    project = place.parent.parent
    (project / "pending").mkdir(exist_ok=True)
    pending = PendingSessions(project)
    pending.put(place.name)
    pending.count_try(place.name)


@pytest.mark.parametrize(
    ("name", "write"),
    [("history", _history), ("pending/s", _pending)],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_history_and_pending_files_are_not_written_through_a_symlink(
    tmp_path: Path, name: str, write: Callable[[Path], Any]
) -> None:
    place, outside = tmp_path / name, tmp_path / "outside"
    place.parent.mkdir(exist_ok=True)
    outside.write_text("theirs")
    place.symlink_to(outside)

    write(place)

    assert outside.read_text() == "theirs"
