"""Checkpoints against a model: whatever happens to files, each is restored as it was."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from refold.place.port import SnapshotTaken
from tests.place.repositories import checkpoints, files, repository

NAMES = st.sampled_from(
    ["a", "b", "d/a", "d/b", "d/e/a", "a/x", "w\nx", "é", "-o", "x.log", "d/e"]
)
CONTENTS = st.sampled_from(
    [b"", b"one\n", b"two\n", b"\0\xff", b"one\r\n", b"6 byte", b"6 more"]
)


class Files(RuleBasedStateMachine):
    """Creates, changes and deletes files; two sessions take snapshots and restore files."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="checkpoints-"))
        self.root = self.base / "work"
        self.taken = list[tuple[SnapshotTaken, Mapping[str, object]]]()

    @initialize(inside=st.booleans())
    def start(self, inside: bool) -> None:
        self.root.mkdir()
        if inside:
            repository(self.root)
        (self.root / ".gitignore").write_text("*.log\n")
        self.sessions = [checkpoints(self.root, session=name) for name in ("one", "two")]

    @rule(name=NAMES, content=CONTENTS, run=st.booleans())
    def write(self, name: str, content: bytes, run: bool) -> None:
        place = self.free(name)
        if place.is_symlink():
            place.unlink()
        place.write_bytes(content)
        place.chmod(0o755 if run else 0o644)

    @rule(name=NAMES, to=st.sampled_from(["a", "/etc", "..", "d"]))
    def link(self, name: str, to: str) -> None:
        place = self.free(name)
        place.unlink(missing_ok=True)
        place.symlink_to(to)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        place = self.root / name
        if os.path.realpath(place.parent) != str(place.parent):
            return
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif os.path.lexists(place):
            place.unlink()

    @rule(by=st.integers(0, 1))
    def take(self, by: int) -> None:
        self.taken.append((self.now(by), self.tracked_files()))

    @rule(by=st.integers(0, 1), data=st.data())
    def go_back(self, by: int, data: st.DataObject) -> None:
        if not self.taken:
            return
        to, then = data.draw(st.sampled_from(self.taken))
        ignored = {n: f for n, f in files(self.root).items() if n.endswith(".log")}
        blocked = any(self.is_below_a_file(name, then) for name in ignored)

        try:
            anyio.run(self.sessions[by].restore, self.now(by).trees, to.trees)
        except Exception:
            assert blocked
            return

        assert self.tracked_files() == then
        assert {n: f for n, f in files(self.root).items() if n.endswith(".log")} == ignored

    @invariant()
    def what_was_taken_is_as_it_was(self) -> None:
        for one, then in self.taken[-2:]:
            for other, there in self.taken[-2:]:
                assert (one.trees == other.trees) == (then == there)

    def now(self, by: int) -> SnapshotTaken:
        self.sessions[by].note_change()
        return anyio.run(self.sessions[by].take)

    def tracked_files(self) -> Mapping[str, object]:
        return {n: f for n, f in files(self.root).items() if not n.endswith(".log")}

    def is_below_a_file(self, ignored: str, then: Mapping[str, object]) -> bool:
        return any(ignored.startswith(f"{name}/") for name in then)

    def free(self, name: str) -> Path:
        """Make way for a file: no folder there, and no file or link above it."""
        place = self.root / name
        above = self.root
        for part in Path(name).parts[:-1]:
            above = above / part
            if above.is_symlink() or above.is_file():
                above.unlink()
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def teardown(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)


QUICK = settings(
    max_examples=8, stateful_step_count=12, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
LONG = settings(QUICK, max_examples=75, stateful_step_count=30)


class TestFiles(Files.TestCase):
    settings = QUICK


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestFilesForLong(Files.TestCase):
    settings = LONG


KILLED = """
import os, sys, anyio
from pathlib import Path
from tests.place.repositories import checkpoints
kept = checkpoints(Path(sys.argv[1]))
now = anyio.run(kept.taken)
to = tuple(tuple(each.split("=")) for each in sys.argv[2:])
sys.stdout.write("now\\n"); sys.stdout.flush()
anyio.run(kept.restore, now.trees, to)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.04, 0.08, 0.16])
def test_a_killed_restore_can_be_repeated(tmp_path: Path, after: float) -> None:
    root = tmp_path / "work"
    root.mkdir()
    for n in range(300):
        (root / f"f{n}").write_text(f"{n}\n")
    session_checkpoints = checkpoints(root)
    before, then = anyio.run(session_checkpoints.take), files(root)
    for n in range(300):
        (root / f"f{n}").write_text("agent\n") if n % 3 else (root / f"f{n}").unlink()
    session_checkpoints.note_change()
    now = anyio.run(session_checkpoints.take)

    program = [
        sys.executable,
        "-c",
        KILLED,
        str(root),
        *("=".join(tree) for tree in before.trees),
    ]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after)
        os.killpg(process.pid, signal.SIGKILL)
    anyio.run(checkpoints(root, session="another").restore, now.trees, before.trees)

    assert files(root) == then


@pytest.mark.slow
def test_a_killed_snapshot_does_not_block_the_next_one(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    for n in range(3000):
        (root / f"f{n}").write_text(f"{n}\n")
    program = [sys.executable, "-c", KILLED, str(root)]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGKILL)

    result = anyio.run(checkpoints(root).take)

    assert result.trees == anyio.run(checkpoints(root, session="other").take).trees
