"""The root and state of a repository, read without running git."""

import os
import subprocess
from pathlib import Path

import pytest

from refold.prompts.repository import Git, folder_chain, git_state, root_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_commit(folder: Path, subject: str = "First things") -> str:
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")[:8]


def test_the_repository_root_is_the_nearest_parent_with_git(root: Path) -> None:
    inner = root / "a/b/c"
    inner.mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "a/b/.git").write_text("gitdir: ../x\n")

    assert root_of(str(inner)) == str(root / "a/b")
    assert root_of(str(root / "a")) == str(root)
    assert folder_chain(str(inner), str(root / "a")) == tuple(
        str(root / text) for text in ("a", "a/b", "a/b/c")
    )


def test_outside_a_repository_the_directory_is_its_own_root(root: Path) -> None:
    (root / "link").symlink_to(root)

    assert root_of(str(root / "link")) == str(root)
    assert folder_chain(str(root), str(root)) == (str(root),)
    assert git_state(str(root)) is None


def test_git_state_has_branch_and_last_commit(root: Path) -> None:
    commit = make_commit(root, "Mend the parser\n\nIt was broken.")

    assert git_state(str(root)) == Git("main", commit, "Mend the parser")


def test_git_state_without_a_commit_has_the_branch(root: Path) -> None:
    git(root, "init", "-q")

    assert git_state(str(root)) == Git("main")


def test_git_state_of_a_detached_head_has_no_branch(root: Path) -> None:
    commit = make_commit(root)
    git(root, "checkout", "-q", "--detach")

    assert git_state(str(root)) == Git("", commit, "First things")


def test_git_state_reads_packed_refs(root: Path) -> None:
    commit = make_commit(root)
    git(root, "gc", "-q")

    assert git_state(str(root)) == Git("main", commit)


def test_git_state_of_a_work_tree_has_its_own_branch(root: Path) -> None:
    main = root / "main"
    main.mkdir()
    commit = make_commit(main)
    git(main, "worktree", "add", "-q", "-b", "side", str(root / "side"))

    assert git_state(str(root / "side")) == Git("side", commit, "First things")


def test_git_state_shortens_long_branch_and_commit_names(root: Path) -> None:
    make_commit(root, "x" * 200 + "\u202e")
    git(root, "checkout", "-q", "-b", "b" * 100)

    state = git_state(str(root))

    assert state is not None
    assert (len(state.branch), len(state.subject)) == (72, 72)
    assert state.subject.endswith("x…")


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\xff\xfe", b"ref: refs/heads/../../../etc/passwd\n", b"ref: refs/heads/a b\n",
        b"ref: refs/heads/.invalid\n", b"ref: HEAD\n", b"ref: refs/heads/a\x1b[2J\n",
    ],
)  # fmt: skip
def test_git_state_with_an_invalid_head_is_none(head: bytes, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git/HEAD").write_bytes(head)

    assert git_state(str(root)) is None


def test_git_state_ignores_a_commit_object_that_is_a_pipe_or_invalid(root: Path) -> None:
    commit = "ab" * 20
    place = root / ".git/objects" / commit[:2]
    place.mkdir(parents=True)
    (root / ".git/HEAD").write_text(commit)

    (place / commit[2:]).write_bytes(b"no zlib")
    odd = git_state(str(root))
    (place / commit[2:]).unlink()
    os.mkfifo(place / commit[2:])

    assert odd == git_state(str(root)) == Git("", commit[:8])


def test_git_state_runs_no_program_configured_in_the_repository(root: Path) -> None:
    make_commit(root)
    git(root, "config", "core.fsmonitor", f"touch {root}/was-run")
    hook = root / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {root}/was-run\n")
    hook.chmod(0o755)

    git_state(str(root))

    assert not (root / "was-run").exists()
