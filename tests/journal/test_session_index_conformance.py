"""Every index of sessions keeps the contract."""

from pathlib import Path

import pytest

from refold.journal.journal_directory import JournalDirectory
from refold.journal.session_index import SessionIndex
from refold.testing.session_index_conformance import SessionIndexContract
from refold.testing.sessions import MemorySessions


class TestJournalDirectory(SessionIndexContract):
    @pytest.fixture
    def sessions(self, tmp_path: Path) -> SessionIndex:
        return JournalDirectory(tmp_path / "home" / "sessions")


class TestMemorySessions(SessionIndexContract):
    @pytest.fixture
    def sessions(self) -> SessionIndex:
        return MemorySessions()
