"""Checkpoints of a place elsewhere come home as packs, and bring its files back if it is lost."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from refold.app.checkpoints_at_home import CheckpointsAtHome
from refold.cli.main import main
from refold.errors import ToolFailed
from refold.journal.events.kinds import Checkpointed, FilesRestored, SessionStarted
from refold.journal.store.port import MemoryStore
from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.home_packs import HomePacks, StoredCheckpoint
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_snapshots import PlaceSnapshots
from refold.place.port import Trees
from refold.place.snapshot_exchange import check_trees, open_incoming
from refold.place.snapshot_repository import EMPTY_TREE, SnapshotRepository
from refold.session.recorder import Recorder
from tests.journal_files import find_journals

pytestmark = pytest.mark.slow  # each connection sends the program

_SETTINGS = PlaceSettings(
    {"profile": "workspace", "network": False, "user_namespaces": False}, {}
)


class Far:
    """A place in a directory that stores its own files in `data`, and its packs at home."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory, self.data = tmp_path / "far", tmp_path / "data"
        self.directory.mkdir(exist_ok=True)
        self.packs = HomePacks(tmp_path / "checkpoints", str(tmp_path / "home"), os.environ)
        self.repository = next((tmp_path / "checkpoints").glob("*"), tmp_path)
        self.connect()

    def connect(self) -> None:
        address = PlaceAddress("cmd:test", "cmd", ("sh",), str(self.directory))
        environ = {**os.environ, "XDG_DATA_HOME": str(self.data)}
        self.pipe = Pipe(address, _SETTINGS, environ)
        self.snapshots = PlaceSnapshots(self.pipe, lambda: None, self.packs)

    def lose(self, *, files: bool = True) -> None:
        """Lose what refold has there, and the files."""
        self.pipe.close()
        shutil.rmtree(self.data)
        if files:
            shutil.rmtree(self.directory)
            self.directory.mkdir()
        self.connect()

    def take(self) -> Trees:
        self.snapshots.note_change()
        return anyio.run(self.snapshots.take).trees

    def pull(self, seq: int, trees: Trees) -> bool:
        return self.packs.pull(self.pipe.begin, [StoredCheckpoint("s", seq, trees)])


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path)
    yield far
    far.pipe.close()


def pack_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "checkpoints").rglob("*.pack"))


def test_a_checkpoint_pull_transfers_only_objects_missing_at_home(
    far: Far, tmp_path: Path
) -> None:
    (far.directory / "large").write_bytes(os.urandom(300_000))
    first = far.take()
    assert far.pull(1, first)
    size = pack_bytes(tmp_path)
    (far.directory / "small").write_text("new\n")

    assert far.pull(2, far.take())

    assert size > 300_000
    assert pack_bytes(tmp_path) - size < 2_000
    assert [one.seq for one in far.packs.stored()] == [1, 2]


def test_a_lost_workspace_elsewhere_gets_its_files_from_the_checkpoint_at_home(
    far: Far,
) -> None:
    (far.directory / "a.txt").write_text("kept\n")
    (far.directory / "sub").mkdir()
    (far.directory / "sub" / "run").write_text("#!/bin/sh\n")
    (far.directory / "sub" / "run").chmod(0o755)
    far.pull(1, far.take())
    far.lose()

    count = far.packs.rebuild(far.pipe.begin, far.packs.stored()[-1], always=False)

    assert count == 2
    assert (far.directory / "a.txt").read_text() == "kept\n"
    assert os.access(far.directory / "sub" / "run", os.X_OK)


def test_the_checkpoint_after_a_rewind_elsewhere_is_pulled_home_before_the_next_turn(
    far: Far,
) -> None:
    path = far.directory / "a.txt"
    path.write_text("new\n")
    before = far.take()
    path.write_text("old\n")
    after = far.take()

    async def record_rewind() -> None:
        record, home = Recorder(MemoryStore()), CheckpointsAtHome(far.pipe, far.packs)
        await record.open()
        await record(SessionStarted(str(far.directory)))
        await home.join("s", record, read_only=False)
        await record(Checkpointed(before), FilesRestored(2, 2, 1))
        await anyio.sleep(0.5)  # a transfer that begins now would not have the next one
        await record(Checkpointed(after))
        with anyio.fail_after(30):
            while len(far.packs.stored()) < 2:
                await anyio.sleep(0.02)
        await record.close()

    anyio.run(record_rewind)

    assert [one.trees for one in far.packs.stored()] == [before, after]


def test_a_new_workspace_elsewhere_that_has_files_is_not_overwritten(far: Far) -> None:
    (far.directory / "a.txt").write_text("kept\n")
    far.pull(1, far.take())
    far.lose()
    (far.directory / "other.txt").write_text("of somebody\n")

    count = far.packs.rebuild(far.pipe.begin, far.packs.stored()[-1], always=False)

    assert count is None
    assert [path.name for path in far.directory.iterdir()] == ["other.txt"]


def test_a_rewind_elsewhere_works_after_the_snapshots_there_were_lost(far: Far) -> None:
    path = far.directory / "a.txt"
    path.write_text("old\n")
    before = far.take()
    path.write_text("new\n")
    far.pull(1, before)
    far.lose(files=False)
    now = far.take()

    changes = far.snapshots.changes(now, before)
    anyio.run(partial(far.snapshots.restore, now, before))

    assert [(change.added, change.removed) for change in changes] == [(1, 1)]
    assert path.read_text() == "old\n"


def test_a_checkpoint_lost_elsewhere_is_reported_and_not_stored_at_home(far: Far) -> None:
    (far.directory / "a.txt").write_text("x")
    trees = far.take()
    far.lose()

    assert not far.pull(1, trees)

    assert "is not there any more" in far.packs.notice
    assert far.packs.stored() == []


def repository_with(tmp_path: Path, entry: bytes, name: bytes = b"x") -> tuple[Path, str]:
    """Return a repository with a tree that git itself would not make."""
    folder = tmp_path / "hostile"
    git = partial(subprocess.run, cwd=folder, check=True, capture_output=True)
    folder.mkdir()
    git(["git", "init", "-q"])
    blob = git(["git", "hash-object", "-w", "--stdin"], input=name).stdout.split()[0]
    raw = entry + b"\0" + bytes.fromhex(blob.decode())
    how = ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    tree = git(how, input=raw).stdout.decode().strip()
    return folder, tree


def pack_of(folder: Path, names: str, *options: str) -> bytes:
    how = ["git", "pack-objects", "--stdout", "-q", *options]
    return subprocess.run(
        how, cwd=folder, input=names.encode(), check=True, capture_output=True
    ).stdout


def store_at_home(tmp_path: Path, pack: bytes) -> SnapshotRepository:
    git = shutil.which("git") or ""
    repository = SnapshotRepository(tmp_path / "c" / "home", git, os.environ["PATH"])
    with open_incoming(repository) as incoming:
        incoming.put(pack)
        incoming.finish()
    return repository


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (b"100644 ..", "no file may be called"),
        (b"100644 .GIT", "no file may be called"),
        (b"160000 sub", "no file may be called"),
    ],
)
def test_a_checkpoint_tree_from_elsewhere_with_a_forbidden_name_is_refused(
    tmp_path: Path, entry: bytes, why: str
) -> None:
    folder, tree = repository_with(tmp_path, entry)
    repository = store_at_home(tmp_path, pack_of(folder, f"{tree}\n", "--revs"))

    with pytest.raises(ToolFailed, match=why):
        check_trees(repository, [(EMPTY_TREE, tree)])


def test_a_checkpoint_tree_from_elsewhere_with_an_allowed_name_is_accepted(
    tmp_path: Path,
) -> None:
    folder, tree = repository_with(tmp_path, b"100644 good")
    repository = store_at_home(tmp_path, pack_of(folder, f"{tree}\n", "--revs"))

    check_trees(repository, [(EMPTY_TREE, tree)])  # raises for a refused tree


def test_a_checkpoint_tree_from_elsewhere_without_its_content_is_refused(
    tmp_path: Path,
) -> None:
    folder, tree = repository_with(tmp_path, b"100644 a")
    repository = store_at_home(tmp_path, pack_of(folder, f"{tree}\n"))

    with pytest.raises(ToolFailed, match="is incomplete"):
        check_trees(repository, [(EMPTY_TREE, tree)])


def test_a_checkpoint_name_from_elsewhere_that_looks_like_a_git_option_is_refused(
    far: Far, tmp_path: Path
) -> None:
    (far.directory / "a.txt").write_text("x")
    ((root, _),) = far.take()

    assert not far.pull(1, ((root, f"--output={tmp_path}/written"),))

    assert "no checkpoint has" in far.packs.notice
    assert not (tmp_path / "written").exists()


def test_a_checkpoint_pack_damaged_in_transfer_is_refused(tmp_path: Path) -> None:
    folder, tree = repository_with(tmp_path, b"100644 a")
    pack = bytearray(pack_of(folder, f"{tree}\n", "--revs"))
    pack[len(pack) // 2] ^= 1

    with pytest.raises(ToolFailed):
        store_at_home(tmp_path, bytes(pack))

    assert not list((tmp_path / "c").rglob("*.idx"))
    assert not list((tmp_path / "c").rglob("exchange-*"))


@pytest.fixture
def session_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path]]:
    here, directory, data = tmp_path / "here", tmp_path / "far", tmp_path / "fardata"
    here.mkdir()
    monkeypatch.chdir(here)
    directory.mkdir()
    (directory / "app.py").write_text('print("howdy")\n')
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield directory, data


def write_script(path: Path, *steps: dict[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return str(path)


def test_a_session_whose_workspace_elsewhere_was_lost_continues_with_restored_files(
    session_place: tuple[Path, Path], home: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    directory, data = session_place
    place = f'cmd:"env XDG_DATA_HOME={data} sh # {directory}"'
    edit = {"path": "app.py", "old": "howdy", "new": "hello"}
    one = write_script(
        tmp_path / "one",
        {"calls": [{"tool": "read_file", "arguments": {"path": "app.py"}}]},
        {"calls": [{"tool": "edit_file", "arguments": edit}]},
        {"text": "Done."},
    )
    read = {"tool": "read_file", "arguments": {"path": "app.py"}}
    two = write_script(tmp_path / "two", {"calls": [read]}, {"text": "Seen."})
    main(["-p", "Fix it", "--yolo", "--workspace", place, "--script", one])
    for path in (directory, data):
        shutil.rmtree(path)
    directory.mkdir()

    code = main(["-c", "-p", "Look", "--yolo", "--workspace", place, "--script", two])

    out, err = capfd.readouterr()
    (journal,) = find_journals(home)
    events = [json.loads(row) for row in journal.read_text().splitlines()]
    (rebuilt,) = [event["data"] for event in events if event["kind"] == "PlaceRebuilt"]
    requests = [event["data"] for event in events if event["kind"] == "ModelAsked"]
    assert (code, out) == (0, "Done.\nSeen.\n")
    assert (directory / "app.py").read_text() == 'print("hello")\n'
    assert rebuilt["restored"]
    assert rebuilt["files"] == 1
    assert "place_rebuilt" in str(requests)
    assert not err.count("Traceback")
