"""The contracts hold for a store that many machines can share, on a server of the test's own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest

from refold.errors import JournalError
from refold.journal.events.kinds import Ended, TurnEnded
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import fold
from refold.journal.store.port import Blobs, Store
from refold.testing.conformance import BlobsContract, StoreContract
from refold.testing.session_index_conformance import SessionIndexContract
from refold.testing.sessions import SessionsOfLines
from tests.journal.postgresql import PostgreSQLLines, PostgreSQLStore, postgresql_server

pytestmark = pytest.mark.peer
_NUMBERS = count()


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with postgresql_server() as directory:
        yield directory


class TestPostgreSQLStore(StoreContract):
    @pytest.fixture
    def open_store(self, server: str) -> Callable[[], Store]:
        return partial(PostgreSQLStore, server, f"session-{next(_NUMBERS)}")


class TestPostgreSQLBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, server: str) -> Blobs:
        return PostgreSQLStore(server, f"session-{next(_NUMBERS)}").blobs


class TestPostgreSQLSessions(SessionIndexContract):
    @pytest.fixture
    def sessions(self, server: str) -> SessionIndex:
        lines = PostgreSQLLines(server)
        for session in lines.changed():
            lines.remove(session)
        return SessionsOfLines(lines)


def test_a_session_killed_in_a_call_is_resumed_by_another_process(
    server: str, tmp_path: Path
) -> None:
    """With its journal in PostgreSQL only: a second process resumes it from there."""
    sessions = SessionsOfLines(PostgreSQLLines(server))
    before = {item.id for item in sessions.sessions()}
    (tmp_path / "port.txt").write_text("port = 80\n")
    os.mkfifo(tmp_path / "begun")
    environ = {**os.environ, "REFOLD_HOME": str(tmp_path / "home")}
    edit = {"path": "port.txt", "old": "80", "new": "8080"}
    first = [
        {"calls": [{"tool": "read_file", "arguments": {"path": "port.txt"}}]},
        {"calls": [{"tool": "edit_file", "arguments": edit}]},
        {
            "calls": [
                {"tool": "bash", "arguments": {"command": "echo yes > begun; sleep 60"}}
            ]
        },
    ]

    def start(script: Sequence[object], *session: str) -> subprocess.Popen[bytes]:
        file = tmp_path / "script.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in script))
        program = sys.executable, "-m", "tests.journal.postgresql_session"
        arguments = server, str(tmp_path), str(file), *session
        return subprocess.Popen([*program, *arguments], env=environ)

    killed = start(first)
    try:
        assert (tmp_path / "begun").read_text() == "yes\n"  # it waits for the command
    finally:
        killed.kill()
        killed.wait()
    (session,) = {item.id for item in sessions.sessions()} - before
    assert start([{"text": "Done."}], session).wait(60) == 0

    events = [entry.event for entry in sessions.entries(session)[0]]
    ends = [event.outcome for event in events if isinstance(event, Ended)]
    assert ends == ["done", "done", "unknown"]
    assert isinstance(events[-1], TurnEnded)
    assert fold(sessions.entries(session)[0]).turn.answer == "Done."
    assert (tmp_path / "port.txt").read_text() == "port = 8080\n"
    assert sessions.check(session).damages == ()
    assert not (tmp_path / "home" / "sessions").exists()


def test_an_unreachable_postgresql_database_is_a_journal_error(server: str) -> None:
    with pytest.raises(JournalError, match="failed"):
        anyio.run(PostgreSQLStore(f"{server}/elsewhere", "session").lease)
