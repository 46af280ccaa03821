"""The root and state of a repository, read without running git."""

import os
import subprocess
from pathlib import Path

import pytest

from refold.prompts.repository import Git, chain, git_state, root_of


@pytest.fixture
def top(tmp_path: Path) -> Path:
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


def test_the_repository_root_is_the_nearest_parent_with_git(top: Path) -> None:
    inner = top / "a/b/c"
    inner.mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "a/b/.git").write_text("gitdir: ../x\n")

    assert root_of(str(inner)) == str(top / "a/b")
    assert root_of(str(top / "a")) == str(top)
    assert chain(str(inner), str(top / "a")) == tuple(
        str(top / text) for text in ("a", "a/b", "a/b/c")
    )


def test_outside_a_repository_the_directory_is_its_own_root(top: Path) -> None:
    (top / "link").symlink_to(top)

    assert root_of(str(top / "link")) == str(top)
    assert chain(str(top), str(top)) == (str(top),)
    assert git_state(str(top)) is None


def test_git_state_has_branch_and_last_commit(top: Path) -> None:
    commit = make_commit(top, "Mend the parser\n\nIt was broken.")

    assert git_state(str(top)) == Git("main", commit, "Mend the parser")


def test_git_state_without_a_commit_has_the_branch(top: Path) -> None:
    git(top, "init", "-q")

    assert git_state(str(top)) == Git("main")


def test_git_state_of_a_detached_head_has_no_branch(top: Path) -> None:
    commit = make_commit(top)
    git(top, "checkout", "-q", "--detach")

    assert git_state(str(top)) == Git("", commit, "First things")


def test_git_state_reads_packed_refs(top: Path) -> None:
    commit = make_commit(top)
    git(top, "gc", "-q")

    assert git_state(str(top)) == Git("main", commit)


def test_git_state_of_a_work_tree_has_its_own_branch(top: Path) -> None:
    main = top / "main"
    main.mkdir()
    commit = make_commit(main)
    git(main, "worktree", "add", "-q", "-b", "side", str(top / "side"))

    assert git_state(str(top / "side")) == Git("side", commit, "First things")


def test_git_state_shortens_long_branch_and_commit_names(top: Path) -> None:
    make_commit(top, "x" * 200 + "\u202e")
    git(top, "checkout", "-q", "-b", "b" * 100)

    state = git_state(str(top))

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
def test_git_state_with_an_invalid_head_is_none(head: bytes, top: Path) -> None:
    (top / ".git").mkdir()
    (top / ".git/HEAD").write_bytes(head)

    assert git_state(str(top)) is None


def test_git_state_ignores_a_commit_object_that_is_a_pipe_or_invalid(top: Path) -> None:
    commit = "ab" * 20
    place = top / ".git/objects" / commit[:2]
    place.mkdir(parents=True)
    (top / ".git/HEAD").write_text(commit)

    (place / commit[2:]).write_bytes(b"no zlib")
    odd = git_state(str(top))
    (place / commit[2:]).unlink()
    os.mkfifo(place / commit[2:])

    assert odd == git_state(str(top)) == Git("", commit[:8])


def test_git_state_runs_no_program_configured_in_the_repository(top: Path) -> None:
    make_commit(top)
    git(top, "config", "core.fsmonitor", f"touch {top}/was-run")
    hook = top / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {top}/was-run\n")
    hook.chmod(0o755)

    git_state(str(top))

    assert not (top / "was-run").exists()
