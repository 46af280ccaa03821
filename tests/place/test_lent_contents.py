"""Checkpoints of large trees: the user's git lends contents, and nothing that it says is believed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place import snapshot_root_scan
from refold.place.checkpoints import Checkpoints
from refold.place.port import SnapshotTaken
from refold.place.snapshot_index import parse_index, to_trees
from refold.place.snapshot_lender import may_delete_objects
from refold.place.snapshot_repository import SnapshotRepository
from tests.place.repositories import checkpoints, files, git, repository

COUNT = 240  # more than are stored one by one


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clean repository that is large enough to lend."""
    monkeypatch.setattr(snapshot_root_scan, "LEND_FROM_FILES", COUNT)
    root = repository(tmp_path / "work")
    for number in range(COUNT):
        path = root / f"d{number % 7}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"line {number}\n")
    commit(root)
    return root


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")


def scan(session: Checkpoints) -> SnapshotTaken:
    session.note_change()
    return anyio.run(session.take)


def restore(session: Checkpoints, to: SnapshotTaken) -> int:
    return anyio.run(session.restore, scan(session).trees, to.trees)


def store_of(root: Path) -> Path:
    (store,) = (root.parent / "data" / "checkpoints").iterdir()
    return store


def contents(root: Path) -> set[str]:
    """Return the names of the contents that refold itself has stored."""
    text = git(
        store_of(root), "cat-file", "--batch-all-objects",
        "--batch-check=%(objecttype) %(objectname)",
    )  # fmt: skip
    return {line.split()[1] for line in text.splitlines() if line.startswith("blob")}


def delete_objects(root: Path) -> None:
    """Delete the objects, as `git gc` does when nothing refers to them."""
    for path in sorted((root / ".git" / "objects").rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
        elif len(path.name) == 2:
            path.rmdir()


def test_a_checkpoint_of_a_clean_tree_borrows_git_objects_and_can_be_restored(
    root: Path,
) -> None:
    session = checkpoints(root)
    before, then = scan(session), files(root)
    assert contents(root) == set()
    (root / "d0" / "f0.txt").write_text("changed")
    (root / "d1" / "f1.txt").unlink()
    (root / "new.txt").write_text("new")

    count = restore(session, before)

    assert (count, files(root)) == (3, then)
    assert before.trees == ((str(root), git(root, "rev-parse", "HEAD^{tree}").strip()),)


def test_a_second_session_borrows_the_same_git_objects_and_stores_none(root: Path) -> None:
    first = scan(checkpoints(root))
    size = len(list(store_of(root).glob("objects/pack/*")))

    second = scan(checkpoints(root, session="two"))

    assert (second, len(list(store_of(root).glob("objects/pack/*")))) == (first, size)


def test_a_checkpoint_of_a_small_tree_stores_all_contents(tmp_path: Path) -> None:
    root = repository(tmp_path / "work")
    for number in range(COUNT):
        (root / f"f{number}").write_text(f"{number}")
    commit(root)
    scan(checkpoints(root))

    assert len(contents(root)) == COUNT
    git(store_of(root), "fsck", "--strict")


def test_without_a_record_of_the_lender_a_checkpoint_stores_all_contents(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot_root_scan, "write_lender", fail)
    scan(checkpoints(root))

    assert len(contents(root)) == COUNT
    git(store_of(root), "fsck", "--strict")


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_flag_in_the_git_index_hides_no_change_from_checkpoints(
    root: Path, flag: str
) -> None:
    git(root, "update-index", flag, "d0/f0.txt")
    (root / "d0" / "f0.txt").write_text("hidden from git\n")
    session = checkpoints(root)
    before, then = scan(session), files(root)
    (root / "d0" / "f0.txt").write_text("another")

    restore(session, before)

    assert files(root) == then


def test_a_forged_git_index_changes_no_checkpoint(root: Path) -> None:
    """The forged entry has the true times of the file, and the content of another one."""
    path, index = root / "d0" / "f0.txt", root / ".git" / "index"
    forged = subprocess.run(
        ("git", "hash-object", "-w", "--stdin"), cwd=root, input=b"evil\n", capture_output=True,
        check=True,
    ).stdout.decode().strip()  # fmt: skip
    true = git(root, "hash-object", str(path)).strip()
    data = index.read_bytes().replace(bytes.fromhex(true), bytes.fromhex(forged))
    index.write_bytes(data[:-20] + sha1(data[:-20]).digest())
    assert forged in git(root, "ls-files", "-s", "d0/f0.txt")
    session = checkpoints(root)
    before, then = scan(session), files(root)
    path.write_text("changed")

    restore(session, before)

    assert files(root) == then
    assert forged not in git(store_of(root), "ls-tree", "-r", before.trees[0][1])


def test_checkpoints_restore_files_that_git_converts_byte_for_byte(root: Path) -> None:
    (root / ".gitattributes").write_text(
        "crlf/* text eol=crlf\n*.id ident\n*.u working-tree-encoding=UTF-16\n*.bin filter=lfs\n"
    )
    git(root, "config", "core.autocrlf", "true")
    git(root, "config", "filter.lfs.clean", "sed s/.*/pointer/")
    git(root, "config", "filter.lfs.smudge", "cat")
    (root / "crlf").mkdir()
    (root / "crlf" / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "b.id").write_bytes(b"$Id: 123 $\n")
    (root / "c.u").write_bytes("text\n".encode("utf-16"))
    (root / "large.bin").write_bytes(b"the true content\n")
    commit(root)
    session = checkpoints(root)
    before, then = scan(session), files(root)
    for name in ("crlf/a.txt", "b.id", "c.u", "large.bin"):
        (root / name).unlink()

    count = restore(session, before)

    assert (count, files(root)) == (4, then)


def test_a_forged_git_object_is_not_restored(root: Path) -> None:
    path = root / "d0" / "f0.txt"
    name = git(root, "hash-object", str(path)).strip()
    evil = subprocess.run(
        ("git", "hash-object", "-w", "--stdin"), cwd=root, input=b"evil\n", capture_output=True,
        check=True,
    ).stdout.decode().strip()  # fmt: skip
    session = checkpoints(root)
    before = scan(session)
    objects = root / ".git" / "objects"
    (objects / name[:2] / name[2:]).unlink()
    (objects / evil[:2] / evil[2:]).rename(objects / name[:2] / name[2:])
    path.write_text("changed")

    after = scan(session)
    with pytest.raises(ToolFailed, match=r"are lost|is lost"):
        anyio.run(session.restore, after.trees, before.trees)

    assert (after.lost, path.read_text()) == ((str(path),), "changed")


def test_amend_and_gc_delete_nothing_that_a_checkpoint_needs(root: Path) -> None:
    session = checkpoints(root)
    before, then = scan(session), files(root)
    command = (
        "git rm -qrf d0 d1; git commit -q --amend -m less; "
        "git reflog expire --expire=now --all; git gc -q --prune=now"
    )
    anyio.run(session.secure, command.encode())
    for line in command.split("; "):
        git(root, *line.split()[1:])

    restore(session, before)

    assert (files(root), scan(session).lost) == (then, ())


def test_deleted_git_objects_are_stored_again_from_unchanged_files(
    root: Path,
) -> None:
    session = checkpoints(root)
    before, then = scan(session), files(root)
    delete_objects(root)

    assert scan(session).lost == ()
    (root / "d0" / "f0.txt").write_text("changed")
    restore(session, before)

    assert files(root) == then


def test_a_changed_file_whose_git_objects_were_deleted_is_named_as_lost(root: Path) -> None:
    session = checkpoints(root)
    before = scan(session)
    (root / "d0" / "f0.txt").write_text("changed")
    delete_objects(root)

    after = scan(session)

    assert after.lost == (str(root / "d0" / "f0.txt"),)
    with pytest.raises(ToolFailed, match="1 files of that snapshot are lost"):
        anyio.run(session.restore, after.trees, before.trees)


def test_content_stored_at_a_change_is_restored_after_its_git_objects_were_deleted(
    root: Path,
) -> None:
    session = checkpoints(root)
    before, then = scan(session), files(root)
    (root / "d0" / "f0.txt").write_text("changed")
    scan(session)  # stores what the file was
    delete_objects(root)

    restore(session, before)

    assert files(root) == then


def test_many_new_files_are_stored_in_one_pack_and_restored(root: Path) -> None:
    session = checkpoints(root)
    scan(session)
    for number in range(COUNT):
        (root / f"new{number}").write_text(f"new {number}\n")
    (root / "link").symlink_to("nowhere")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    packs_before = set(store_of(root).glob("objects/pack/*.pack"))
    before, then = scan(session), files(root)
    packs_after = set(store_of(root).glob("objects/pack/*.pack"))
    for path in (*root.glob("new*"), root / "link", root / "run"):
        path.unlink()

    count = restore(session, before)

    assert len(packs_after - packs_before) == 1
    assert (count, files(root), len(contents(root))) == (COUNT + 2, then, COUNT + 2)


def test_computed_tree_hashes_equal_those_of_git(root: Path) -> None:
    for name in ("a", "a.b", "a-b", "ab", "a0", "é"):
        (root / "d0" / f"{name}.d" / "deep").mkdir(parents=True)
        (root / "d0" / f"{name}.d" / "deep" / "file").write_text(name)
        (root / "d0" / name).write_text(name)
    (root / "d0" / "link").symlink_to("a")
    git(root, "add", ".")

    trees = [
        name.hex() for name, _ in to_trees(parse_index((root / ".git/index").read_bytes()))
    ]

    assert trees[-1] == git(root, "write-tree").strip()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git gc --prune=now", True),
        ("git commit --amend && git reflog expire --expire=now --all", True),
        ("git repack -ad", True),
        ("rm -rf .git && git init", True),
        ("rm -rf /home/user/project", True),
        ("cd .. && rm -r -f *", True),
        ("rm -rf .", True),
        ("find . -name '*' -delete", True),
        ("rm -rf build ./dist", False),
        ("git add .gitignore && git commit -m 'x'", False),
        ("git clone https://example.org/a.git", False),
        ("rm one.txt", False),
        ("make", False),
    ],
)  # fmt: skip
def test_commands_that_may_delete_git_objects_are_recognized(
    command: str, expected: bool
) -> None:
    assert may_delete_objects(command.encode()) is expected


def test_checkpoints_that_borrow_git_objects_do_not_change_the_repository(
    root: Path,
) -> None:
    def state() -> Iterator[tuple[str, bytes]]:
        for path in sorted((root / ".git").rglob("*")):
            if path.is_file():
                yield str(path), path.read_bytes()

    before = dict(state())
    session = checkpoints(root)
    scan(session)
    (root / "d0" / "f0.txt").write_text("changed")
    scan(session)
    anyio.run(session.secure, b"git gc")

    assert dict(state()) == before


def test_a_checkpoint_that_waits_for_its_lock_can_be_cancelled(root: Path) -> None:
    session = checkpoints(root)

    async def main() -> bool:
        with anyio.move_on_after(0.02) as scope:
            await session.take()
        return scope.cancelled_caught

    store = root.parent / "data" / "checkpoints"
    with SnapshotRepository(next_directory(store, root), "git", "").lock(
        "sessions/one/lock"
    ):
        assert anyio.run(
            main
        )  # the lock is held: without the cancellation it never returns


@pytest.mark.slow
def test_a_checkpoint_that_waits_for_its_lock_reports_progress(root: Path) -> None:
    session = checkpoints(root)
    reports = list[tuple[int, int]]()

    def report(done: int, total: int) -> None:
        reports.append((done, total))

    async def main() -> None:
        with anyio.move_on_after(1.5):
            await session.take(report)

    store = root.parent / "data" / "checkpoints"
    with SnapshotRepository(next_directory(store, root), "git", "").lock(
        "sessions/one/lock"
    ):
        anyio.run(main)

    assert reports == [(0, 0)]


def next_directory(store: Path, root: Path) -> Path:
    from refold.place.snapshot_repository import snapshot_directory

    return snapshot_directory(store, os.path.realpath(root))


_SCAN = """
import anyio, os, sys
from pathlib import Path
from refold.place import snapshot_root_scan
from tests.place.repositories import checkpoints
snapshot_root_scan.LEND_FROM_FILES = int(sys.argv[2])
anyio.run(checkpoints(Path(sys.argv[1])).take)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.3, 0.35, 0.4, 0.45, 0.5, 0.6])
@pytest.mark.parametrize("lend_from", [COUNT, 100_000])
def test_a_checkpoint_scan_that_was_killed_is_repeated_completely(
    root: Path, after: float, lend_from: int
) -> None:
    process = subprocess.Popen(
        (sys.executable, "-c", _SCAN, str(root), str(lend_from)), cwd=Path.cwd()
    )
    time.sleep(after)
    process.kill()
    process.wait()

    session = checkpoints(root)
    before, then = scan(session), files(root)
    (root / "d0" / "f0.txt").write_text("changed")
    (root / "d2" / "f2.txt").unlink()
    restore(session, before)

    assert files(root) == then
    assert before.trees == ((str(root), git(root, "rev-parse", "HEAD^{tree}").strip()),)
