"""Every store and all blobs keep their contracts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from refold.journal.store.file import FileStore
from refold.journal.store.port import Blobs, MemoryBlobs, MemoryStore, Store
from refold.testing.conformance import BlobsContract, StoreContract
from tests.journal.sqlite_store import SQLiteStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], Store]:
        return MemoryStore().another_writer


class TestFileStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Store]:
        return partial(FileStore, tmp_path / "sessions" / "one")


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Store]:
        return partial(SQLiteStore, tmp_path / "journal.db")


class TestMemoryBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self) -> Blobs:
        return MemoryBlobs()


class TestFileBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FileStore(tmp_path / "sessions" / "one").blobs


class TestSQLiteBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return SQLiteStore(tmp_path / "journal.db").blobs
