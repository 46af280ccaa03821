"""Fixtures for tests of skills."""

from pathlib import Path

import pytest

from tests.skills.surrounded import SkillDirectories


@pytest.fixture
def directories(tmp_path: Path) -> SkillDirectories:
    return SkillDirectories(tmp_path.resolve())
