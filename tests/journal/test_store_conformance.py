"""Every store keeps the contract."""

from pathlib import Path

import pytest

from refold.journal.store.file import FileStore
from refold.journal.store.port import MemoryStore, Store
from refold.testing.conformance import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestFileStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FileStore(tmp_path / "sessions" / "one")
