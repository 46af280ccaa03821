"""The project of a directory, also if its files were written by an attacker."""

import os
import subprocess
from pathlib import Path

import pytest

from refold.memory.project import project_of


def test_a_work_tree_belongs_to_its_repository(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    run = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(main))
    main.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run([*run, *words], check=True)
    subprocess.run([*run, "worktree", "add", "-q", str(tree)], check=True)

    assert project_of(tree) == main


@pytest.mark.timeout(20)
@pytest.mark.parametrize("odd", ["pipe", "nothing", "another repository", "no text"])
def test_an_unconfirmed_gitdir_pointer_is_ignored(tmp_path: Path, odd: str) -> None:
    git_directory = tmp_path / "other/.git/worktrees/w"
    git_directory.mkdir(parents=True)
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/.git").write_text(f"gitdir: {git_directory}")
    match odd:
        case "pipe":
            os.mkfifo(git_directory / "gitdir")
        case "another repository":
            (git_directory / "gitdir").write_text(str(tmp_path / "else/.git"))
        case "no text":
            (git_directory / "gitdir").write_bytes(b"\xff\x00\xfe")
        case _:
            pass

    assert project_of(tmp_path / "ws") == tmp_path / "ws"
