"""Commits of the user's repository, which files are compared with."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.checkpoints import Checkpoints
from refold.place.port import FileChange
from refold.prompts.repository import head_commit
from tests.place.repositories import bytes_of, checkpoints, git, repository


def commit(root: Path, subject: str) -> str:
    git(root, "add", ".")
    git(root, "commit", "-qm", subject)
    return git(root, "rev-parse", "HEAD").strip()


def changes_since(snapshots: Checkpoints, name: str) -> Sequence[FileChange]:
    before = snapshots.commit_trees(name)
    return snapshots.changes(before, anyio.run(snapshots.take).trees)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = repository(tmp_path / "work")
    (root / "src").mkdir()
    (root / "src" / "a.py").write_text("one\n")
    (root / "old.txt").write_text("old\n")
    return root


def test_commits_of_a_repository_are_listed_newest_first(root: Path) -> None:
    first = commit(root, "Begin")
    (root / "src" / "a.py").write_text("two\n")
    second = commit(root, "Change a\n\nWith a body.")

    listed = checkpoints(root).commits(head_commit(str(root)))

    assert [(item.name, item.subject) for item in listed] == [
        (second, "Change a"),
        (first, "Begin"),
    ]


def test_files_are_compared_with_a_commit_and_its_repository_stays_as_it_is(
    root: Path,
) -> None:
    first = commit(root, "Begin")
    git(root, "gc", "-q")  # into a pack
    (root / "src" / "a.py").write_text("one\ntwo\n")
    commit(root, "Change a")
    (root / "old.txt").unlink()
    (root / ":(top)new").write_text("new\n")
    before, snapshots = bytes_of(root / ".git"), checkpoints(root)

    changes = changes_since(snapshots, first)
    trees = anyio.run(snapshots.take).trees
    patch = snapshots.patch(snapshots.commit_trees(first), trees, [str(root / ":(top)new")])

    assert [(item.path, item.kind, item.added) for item in changes] == [
        (str(root / ":(top)new"), "created", 1),
        (str(root / "old.txt"), "deleted", 0),
        (str(root / "src" / "a.py"), "changed", 1),
    ]
    assert [(change.path, text) for change, text in patch] == [
        (str(root / ":(top)new"), "@@ -0,0 +1,1 @@\n+new")
    ]
    assert bytes_of(root / ".git") == before


def test_a_directory_in_a_repository_is_compared_with_that_part_of_the_commit(
    root: Path,
) -> None:
    first = commit(root, "Begin")
    (root / "src" / "a.py").write_text("two\n")
    (root / "old.txt").write_text("not in this workspace\n")

    changes = changes_since(checkpoints(root / "src"), first)

    assert [(item.path, item.kind) for item in changes] == [
        (str(root / "src" / "a.py"), "changed")
    ]


def test_a_shallow_clone_has_its_newest_commit(root: Path, tmp_path: Path) -> None:
    commit(root, "Begin")
    (root / "old.txt").write_text("new\n")
    second = commit(root, "Change")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", "shallow")

    listed = checkpoints(tmp_path / "shallow").commits(second)

    assert [item.subject for item in listed] == ["Change"]


@pytest.mark.parametrize("name", ["", "HEAD", "--all", "0" * 40, "../x"])
def test_an_unknown_commit_name_is_refused(root: Path, name: str) -> None:
    commit(root, "Begin")
    snapshots = checkpoints(root)

    assert snapshots.commits(name) == ()
    with pytest.raises(ToolFailed):
        snapshots.commit_trees(name)


def test_a_directory_without_a_repository_has_no_commits(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()

    assert checkpoints(tmp_path / "plain").commits("0" * 40) == ()
