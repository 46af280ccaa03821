"""Fixtures that the stories of this directory share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs that they start keep their bytecode: shared, and made once."""
    return tmp_path_factory.mktemp("compiled")
