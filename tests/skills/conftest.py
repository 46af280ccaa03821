"""Fixtures for tests of skills."""

from pathlib import Path

import pytest

from tests.skills.surrounded import Here


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path.resolve())
