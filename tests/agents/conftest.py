"""Fixtures for tests of subagents and of worktrees."""

from pathlib import Path

import pytest

from tests.place.repositories import git
from tests.place.repositories import repository as made


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return the workspace, a git repository with one commit and a name for further commits."""
    work = made(tmp_path / "work")
    (work / "sub").mkdir()
    (work / "a.txt").write_text("one\n")
    (work / "sub" / "b.txt").write_text("two\n")
    git(work, "config", "user.name", "a")
    git(work, "config", "user.email", "a@b")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "first")
    return work
