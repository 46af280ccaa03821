"""A walk remembers what it listed, and the next one sees every change."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.place.file_walk import walk

SETTLED_SECONDS = 0.06  # after which a directory may be remembered


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree that was listed, and may be remembered."""
    root = tmp_path / "tree"
    for name in (
        "a/one.py",
        "a/b/two.py",
        "a/b/x.log",
        "c/three.py",
        "c/.git/info/exclude",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / ".gitignore").write_text("*.log\n")
    (root / ".git").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.py").write_text("")
    time.sleep(SETTLED_SECONDS)
    names(root)
    return root


def names(root: Path) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in walk(str(root), lambda: None))


def test_a_file_walk_sees_a_change_on_a_disk_whose_times_are_whole_seconds(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext3, HFS+ and FAT have such times."""
    exact = os.lstat

    def lstat(path: str) -> os.stat_result:
        about = exact(path)
        times = {"st_ctime_ns": about.st_ctime_ns // 10**9 * 10**9}
        return os.stat_result(about, times)

    monkeypatch.setattr(os, "lstat", lstat)
    while not 0.1 < time.time() % 1 < 0.8:
        time.sleep(0.01)
    (tree / "a/new.py").write_text("")
    names(tree)
    (tree / "a/newer.py").write_text("")

    assert "a/newer.py" in names(tree)


def replace_by_link(root: Path) -> None:
    shutil.rmtree(root / "a/b")
    (root / "a/b").symlink_to(root.parent / "outside")


def swap_directories(root: Path) -> None:
    (root / "a").rename(root / "d")
    (root / "c").rename(root / "a")


def make_repository(root: Path) -> None:
    (root / "a/.git").mkdir()  # the rules from above end here


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "a new file": lambda root: (root / "a/b/new.py").write_text(""),
    "a deleted file": lambda root: (root / "a/b/two.py").unlink(),
    "a deleted directory": lambda root: shutil.rmtree(root / "a"),
    "a new directory": lambda root: shutil.copytree(root / "a", root / "d"),
    "renamed directories": swap_directories,
    "a link in place of a directory": replace_by_link,
    "a file in place of a directory": lambda root: (
        shutil.rmtree(root / "a/b"),
        (root / "a/b").write_text(""),
    ),
    "rewritten rules": lambda root: (root / ".gitignore").write_text("*.py\n"),
    "deleted rules": lambda root: (root / ".gitignore").unlink(),
    "new rules below": lambda root: (root / "a/.gitignore").write_text("!x.log\ntwo.py\n"),
    "new rules of no git": lambda root: (root / "a/.ignore").write_text("b\n"),
    "rules of a clone": lambda root: (root / "c/.git/info/exclude").write_text("three.py"),
    "a new repository": make_repository,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_repeated_file_walk_lists_the_same_as_a_first_walk(
    tree: Path, change: Callable[[Path], object]
) -> None:
    change(tree)
    copy = tree.parent / "copy"
    shutil.copytree(tree, copy, symlinks=True)

    assert names(tree) == names(copy)


def test_a_second_walk_reads_only_the_directory_that_changed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_scandir, read = os.scandir, list[int]()

    def scandir(number: int) -> object:
        read.append(os.fstat(number).st_ino)
        return real_scandir(number)

    monkeypatch.setattr("os.scandir", scandir)
    names(tree)
    assert read == []
    (tree / "a/new.py").write_text("")

    assert "a/new.py" in names(tree)

    assert read == [(tree / "a").stat().st_ino]
