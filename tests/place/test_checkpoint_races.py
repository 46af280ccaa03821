"""A directory that becomes a link during a checkpoint: files elsewhere are not stored."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.checkpoints import Checkpoints
from refold.place.snapshot_files import ParentDirectories
from tests.place.repositories import checkpoints, git

ROUNDS = int(os.environ.get("REFOLD_FLIPS", "40"))
FLIPPER = """
import ctypes, sys, time
libc, one, other = ctypes.CDLL(None), sys.argv[1].encode(), sys.argv[2].encode()
pause, until = float(sys.argv[3]), time.time() + 100
print("flips", flush=True)
while time.time() < until:
    libc.syscall(316, -100, one, -100, other, 2)  # renameat2, exchange
    time.sleep(pause)
"""
SECRET = b"what is nobody's business"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    outside = tmp_path / "outside/deep"
    outside.mkdir(parents=True)
    path = tmp_path / "work"
    (path / "here/deep").mkdir(parents=True)
    for number in range(30):
        (outside / f"f{number}").write_bytes(SECRET)
        (path / f"here/deep/f{number}").write_text(f"ours {number}")
    (path / "one").write_text("ours")
    (path / "link").symlink_to(outside / "f0")
    (path / "away").symlink_to(tmp_path / "outside")
    return path


@contextmanager
def swap_repeatedly(one: Path, other: Path, pause: float) -> Iterator[None]:
    arguments = (sys.executable, "-c", FLIPPER, str(one), str(other), str(pause))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as flipper:
        assert flipper.stdout
        flipper.stdout.readline()
        try:
            yield
        finally:
            flipper.kill()


def save_checkpoint(checkpoints: Checkpoints, root: Path) -> str:
    """Return every file of a new checkpoint, with the name of its content."""
    checkpoints.note_change()
    trees = anyio.run(checkpoints.take).trees
    store = next((root.parent / "data/checkpoints").glob("*"))
    return "".join(git(store, "ls-tree", "-r", tree) for _, tree in trees)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it is exchanged by a call of Linux")
@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.005])
@pytest.mark.parametrize(("one", "other"), [("here", "away"), ("one", "link")])
def test_a_checkpoint_saves_no_file_outside_while_a_directory_and_a_link_swap(
    root: Path, one: str, other: str, pause: float
) -> None:
    (root.parent / "secret").write_bytes(SECRET)
    name = git(root.parent, "hash-object", "secret").strip()
    texts = list[str]()
    with swap_repeatedly(root / one, root / other, pause):
        for number in range(ROUNDS):
            (root / "new").write_text(str(number))
            session_checkpoints = checkpoints(root, session=f"s{number % 3}")
            try:
                text = save_checkpoint(session_checkpoints, root)
            except ToolFailed as error:
                text = str(error)  # it changes too fast: nothing is saved then
            texts += [line for line in text.splitlines() if name in line]

    assert texts == []


def test_a_parent_directory_is_doubtful_only_after_a_recent_change(root: Path) -> None:
    for directory in (root, root / "here", root / "here/deep"):
        while True:  # until its last change is longer ago than its clock is coarse
            ways = ParentDirectories(str(root), str(root), ["here/deep/f1", "one"])
            if not ways.paths_to_reread():
                break
        (directory / "another").write_text("new")
        assert "here/deep/f1" in ways.paths_to_reread()


def test_files_are_saved_in_a_checkpoint_with_their_modes(root: Path) -> None:
    (root / "here/run").write_text("#!/bin/sh\n")
    (root / "here/run").chmod(0o755)
    text = save_checkpoint(checkpoints(root), root)

    modes = {line.split("\t")[1]: line.split()[0] for line in text.splitlines()}
    assert modes["here/run"] == "100755"
    assert modes["here/deep/f1"] == "100644"
    assert modes["away"] == modes["link"] == "120000"


def test_all_files_of_checkpoints_are_accessible_only_to_their_owner(root: Path) -> None:
    session_checkpoints = checkpoints(root)
    session_checkpoints.note_change()
    anyio.run(session_checkpoints.take)
    (root / "one").write_text("again")
    session_checkpoints.note_change()
    anyio.run(session_checkpoints.take)

    data = root.parent / "data"
    open_ = [str(p) for p in (data, *data.rglob("*")) if p.lstat().st_mode & 0o077]

    assert open_ == []
