"""A repository that lends contents, and is damaged or made to harm the program that reads it."""

import os
import resource
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place import snapshot_objects
from refold.place.ignore_rules import IgnoreRules
from refold.place.port import FileChange
from refold.place.snapshot_repository import SnapshotRepository
from refold.place.snapshot_scan import Scan, ScanProgress
from tests.place.repositories import checkpoints, files, git
from tests.place.test_lent_contents import (
    delete_objects,
    next_directory,
    restore,
    root,
    scan,
)

__all__ = ["root"]  # a fixture
MEGABYTE = bytes(1_000_000)


def lent_object(root: Path, name: str) -> Path:
    content = git(root, "hash-object", name).strip()
    return root / ".git" / "objects" / content[:2] / content[2:]


def test_a_checkpoint_continues_if_a_borrowed_git_object_is_a_pipe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_objects, "MAX_LENDER_SECONDS", 0.05)
    monkeypatch.setattr("refold.place.checkpoints.MAX_BORROWING_SECONDS", 0.05)
    session = checkpoints(root)
    before = scan(session)
    pipe, changed = lent_object(root, "d0/f0.txt"), (root / "d0/f0.txt", root / "d1/f1.txt")
    pipe.unlink()
    os.mkfifo(pipe)
    for path in changed:
        path.write_text("changed")

    after = scan(session)

    assert after.lost == (str(changed[0]),)
    assert session.changes(before.trees, after.trees) == tuple(
        FileChange(str(path), "changed") for path in changed
    )


def test_a_missing_borrowed_git_object_hides_no_change_in_a_checkpoint(root: Path) -> None:
    session = checkpoints(root)
    before = scan(session)
    lent_object(root, "d0/f0.txt").unlink()
    (root / "d0/f0.txt").write_text("changed")
    (root / "new.txt").write_text("new")

    after = scan(session)

    assert session.changes(before.trees, after.trees) == (
        FileChange(str(root / "d0/f0.txt"), "changed"),
        FileChange(str(root / "new.txt"), "created"),
    )


@pytest.mark.slow
def test_a_borrowed_git_object_that_is_too_large_is_not_read(root: Path) -> None:
    session = checkpoints(root)
    scan(session)
    lent, packing = lent_object(root, "d0/f0.txt"), zlib.compressobj(1)
    lent.chmod(0o644)
    with lent.open("wb") as file:
        file.write(packing.compress(b"blob %d\0" % (300 * len(MEGABYTE))))
        for _ in range(300):
            file.write(packing.compress(MEGABYTE))
        file.write(packing.flush())
    (root / "d0/f0.txt").write_text("changed")
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    after = scan(session)

    assert after.lost == (str(root / "d0/f0.txt"),)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes < 100_000


def test_stored_contents_are_restored_although_git_cannot_read_the_repository(
    root: Path,
) -> None:
    session = checkpoints(root)
    before, then = scan(session), files(root)
    (root / "d0/f0.txt").write_text("changed")
    scan(session)  # stores what the file was
    (root / ".git/objects/pack/multi-pack-index").write_bytes(b"MIDX" * 400)

    restore(session, before)

    assert files(root) == then


def test_a_restore_that_needs_a_forged_git_object_changes_no_file(root: Path) -> None:
    session = checkpoints(root)
    before = scan(session)
    lent, other = lent_object(root, "d0/f0.txt"), lent_object(root, "d1/f1.txt")
    other.replace(lent)
    for name in ("d0/f0.txt", "d6/f6.txt"):
        (root / name).write_text("changed")
    (root / "a_new.txt").write_text("new")
    after, then = scan(session), files(root)

    with pytest.raises(ToolFailed, match="1 files of that snapshot are lost"):
        anyio.run(session.restore, after.trees, before.trees)

    assert files(root) == then


class InterruptedProgress(ScanProgress):
    """Calls a function just before files are read again."""

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self._total, self._interrupt = 0, interrupt
        super().__init__()

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        self._total = total
        if total:
            self._interrupt()


def test_a_file_changed_while_deleted_git_objects_are_stored_again_is_in_the_checkpoint(
    root: Path,
) -> None:
    file, git_path = root / "d0/f0.txt", shutil.which("git") or ""
    store = next_directory(root.parent / "data" / "checkpoints", root)
    snapshots = SnapshotRepository(store, git_path, os.environ["PATH"])
    session = Scan(snapshots, IgnoreRules(os.environ, git_path, ()), "one")
    session.scan([str(root)], ScanProgress())
    delete_objects(root)
    progress = InterruptedProgress(lambda: file.write_text("changed"))
    session.scan([str(root)], progress)

    ((_, tree),), _ = session.scan([str(root)], ScanProgress())

    assert git(store, "cat-file", "blob", f"{tree}:d0/f0.txt") == "changed"


def test_git_objects_that_a_shared_clone_borrows_are_stored_in_the_checkpoint(
    root: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--shared", str(root), str(clone))
    session = checkpoints(clone)
    before, then = scan(session), files(clone)
    delete_objects(root)
    (clone / "d0/f0.txt").write_text("changed")

    restore(session, before)

    assert files(clone) == then
