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


class DataDirectory:
    """REFOLD_HOME with one session in it, a workspace, and a place outside of both."""

    def __init__(self, directory: Path) -> None:
        self.home, self.work, self.outside = (
            directory / "home",
            directory / "work",
            directory / "outside",
        )
        self.work.mkdir()
        self.outside.mkdir()
        write = call("write_file", path="a.txt", content="a")
        self.script = script(directory, write, {"text": "Done."})
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
        """Move the directory outside, and put a link to it in its place."""
        place = self.session / name if not name.startswith("/") else self.home / name[1:]
        away = self.outside / place.name
        if not place.exists():
            away.mkdir()
            (away / "1234.part").write_text("half of something")
        else:
            place.rename(away)
        place.symlink_to(away)
        return away

    def files_outside(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.outside.rglob("*")) if path.is_file())
        return {str(file): file.read_bytes() for file in files}


@pytest.fixture
def data_directory(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", "pen", "blobs"])
def test_a_session_directory_that_contains_a_symlink_is_not_resumed(
    data_directory: DataDirectory, name: str
) -> None:
    data_directory.replace_by_link(name)
    before = data_directory.files_outside()

    code, text = data_directory.run("-p", "more", "-r", data_directory.session.name)

    assert (code, text.count(SAID), text.count("\n")) == (1, 1, 1)
    assert str(data_directory.session) in text
    assert data_directory.files_outside() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", "", "/sessions"])
def test_sessions_subcommands_refuse_a_symlinked_session(
    data_directory: DataDirectory, name: str
) -> None:
    id_ = data_directory.session.name
    data_directory.replace_by_link(name or f"/sessions/{id_}")
    before = data_directory.files_outside()

    for words in (("show", id_), ("check", id_), ("export", id_), ("delete", id_, "--yes")):
        code, text = data_directory.run("sessions", *words)
        assert (code, text.count("\n")) == (1, 1)
        assert "is a link, and no session is read, copied or deleted through one" in text
    assert data_directory.files_outside() == before


@pytest.mark.slow
def test_symlinked_session_and_sessions_directories_are_refused(
    data_directory: DataDirectory,
) -> None:
    data_directory.replace_by_link(f"/sessions/{data_directory.session.name}")
    one = data_directory.run("-p", "more", "-r", data_directory.session.name)
    data_directory.replace_by_link("/sessions")
    before = data_directory.files_outside()
    fresh = data_directory.run("-p", "anew")

    assert [code for code, _ in (one, fresh)] == [1, 1]
    assert SAID in one[1]
    assert SAID in fresh[1]
    assert data_directory.files_outside() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["checkpoints", "checkpoints/*", "checkpoints/*/objects", "checkpoints/*/objects/??",
             "checkpoints/*/sessions", "checkpoints/*/info"],
)  # fmt: skip
def test_checkpoints_are_not_written_through_a_symlink(
    data_directory: DataDirectory, name: str
) -> None:
    (first, *_) = sorted(data_directory.home.glob(name))
    data_directory.replace_by_link(f"/{first.relative_to(data_directory.home)}")
    (
        data_directory.work / "a.txt"
    ).unlink()  # else writing it unread fails, without a checkpoint
    before = data_directory.files_outside()

    code, text = data_directory.run("-p", "anew")

    assert (code, SAID in text) == (0, True)
    assert data_directory.files_outside() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["refold.log", "catalogue.sqlite"])
def test_a_symlinked_log_or_catalogue_is_not_written_through(
    data_directory: DataDirectory, name: str
) -> None:
    data_directory.run("sessions", "list")
    data_directory.replace_by_link(f"/{name}")
    before = data_directory.files_outside()

    assert data_directory.run("sessions", "list")[0] == 0
    assert data_directory.run("-p", "anew")[0] == 0
    assert data_directory.files_outside() == before


@pytest.mark.slow
def test_refold_home_may_be_a_symlink(data_directory: DataDirectory) -> None:
    data_directory.home.rename(data_directory.outside / "home")
    data_directory.home.symlink_to(data_directory.outside / "home")

    assert data_directory.run("-p", "more", "-r", data_directory.session.name)[0] == 0


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
