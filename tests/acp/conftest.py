"""A workspace for the sessions of an editor."""

from pathlib import Path

import pytest


@pytest.fixture
def project_directory(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path
