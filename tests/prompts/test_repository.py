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


def committed(folder: Path, subject: str = "First things") -> str:
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")[:8]


def test_a_repository_begins_at_the_nearest_git_upwards(top: Path) -> None:
    inner = top / "a/b/c"
    inner.mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "a/b/.git").write_text("gitdir: ../x\n")

    assert root_of(str(inner)) == str(top / "a/b")
    assert root_of(str(top / "a")) == str(top)
    assert chain(str(inner), str(top / "a")) == tuple(
        str(top / each) for each in ("a", "a/b", "a/b/c")
    )


def test_elsewhere_the_directory_stands_for_itself(top: Path) -> None:
    (top / "link").symlink_to(top)

    assert root_of(str(top / "link")) == str(top)
    assert chain(str(top), str(top)) == (str(top),)
    assert git_state(str(top)) is None


def test_the_branch_and_the_last_commit_are_told(top: Path) -> None:
    commit = committed(top, "Mend the parser\n\nIt was broken.")

    assert git_state(str(top)) == Git("main", commit, "Mend the parser")


def test_a_repository_without_a_commit_has_a_branch(top: Path) -> None:
    git(top, "init", "-q")

    assert git_state(str(top)) == Git("main")


def test_a_commit_that_is_checked_out_alone_has_no_branch(top: Path) -> None:
    commit = committed(top)
    git(top, "checkout", "-q", "--detach")

    assert git_state(str(top)) == Git("", commit, "First things")


def test_branches_that_are_packed_are_found(top: Path) -> None:
    commit = committed(top)
    git(top, "gc", "-q")

    assert git_state(str(top)) == Git("main", commit)


def test_of_several_working_trees_each_has_its_branch(top: Path) -> None:
    main = top / "main"
    main.mkdir()
    commit = committed(main)
    git(main, "worktree", "add", "-q", "-b", "side", str(top / "side"))

    assert git_state(str(top / "side")) == Git("side", commit, "First things")


def test_names_are_short_and_on_one_line(top: Path) -> None:
    committed(top, "x" * 200 + "\u202e")
    git(top, "checkout", "-q", "-b", "b" * 100)

    found = git_state(str(top))

    assert found is not None
    assert (len(found.branch), len(found.subject)) == (72, 72)
    assert found.subject.endswith("x…")


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\xff\xfe", b"ref: refs/heads/../../../etc/passwd\n", b"ref: refs/heads/a b\n",
        b"ref: refs/heads/.invalid\n", b"ref: HEAD\n", b"ref: refs/heads/a\x1b[2J\n",
    ],
)  # fmt: skip
def test_a_head_that_is_none_counts_as_nothing(head: bytes, top: Path) -> None:
    (top / ".git").mkdir()
    (top / ".git/HEAD").write_bytes(head)

    assert git_state(str(top)) is None


def test_a_pipe_is_not_waited_for_and_an_odd_commit_not_believed(top: Path) -> None:
    commit = "ab" * 20
    place = top / ".git/objects" / commit[:2]
    place.mkdir(parents=True)
    (top / ".git/HEAD").write_text(commit)

    (place / commit[2:]).write_bytes(b"no zlib")
    odd = git_state(str(top))
    (place / commit[2:]).unlink()
    os.mkfifo(place / commit[2:])

    assert odd == git_state(str(top)) == Git("", commit[:8])


def test_nothing_that_a_repository_names_is_run(top: Path) -> None:
    committed(top)
    git(top, "config", "core.fsmonitor", f"touch {top}/was-run")
    hook = top / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {top}/was-run\n")
    hook.chmod(0o755)

    git_state(str(top))

    assert not (top / "was-run").exists()
