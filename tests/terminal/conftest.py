"""Fixtures that the stories of this directory share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the shared directory in which started programs keep their bytecode."""
    return tmp_path_factory.mktemp("compiled")
