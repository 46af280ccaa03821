"""Sessions in PostgreSQL keep the contracts of the ports, on a server of the test's own."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest

from bench.session_lists import fill
from refold.cluster.card_index import (
    ASKING_SQL,
    ID_SQL,
    MATCHES_SQL,
    NAME_SQL,
    UNINDEXED_SQL,
    list_query,
)
from refold.cluster.database import Connection, Database
from refold.cluster.sessions import NEWEST_SQL, PostgreSQLSessions
from refold.cluster.store import PostgreSQLStore
from refold.errors import BadInput, Conflict, Fenced, Held, JournalError
from refold.journal.catalogue.card_filter import CardFilter
from refold.journal.copy_session import copy_session
from refold.journal.events import codec
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import Ended, Said, TurnEnded
from refold.journal.journal_directory import JournalDirectory
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import fold
from refold.journal.store.port import Blobs, Store
from refold.session.recorder import Recorder
from refold.testing.conformance import BlobsContract, StoreContract
from refold.testing.session_index_conformance import (
    SessionIndexContract,
    opening_events,
    record,
)
from tests.cluster.postgresql import Server

pytestmark = pytest.mark.peer
_NUMBERS = count()
ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"


@pytest.fixture
def sessions(database: Database, tmp_path: Path) -> PostgreSQLSessions:
    return PostgreSQLSessions(database, tmp_path / "sessions")


class TestPostgreSQLStore(StoreContract):
    @pytest.fixture
    def open_store(self, database: Database) -> Callable[[], Store]:
        return partial(PostgreSQLStore, database, ONE)


class TestPostgreSQLBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, database: Database) -> Blobs:
        return PostgreSQLStore(database, ONE).blobs


class TestPostgreSQLSessions(SessionIndexContract):
    pass


def test_a_session_killed_in_a_call_is_resumed_by_another_process(
    server: Server, tmp_path: Path
) -> None:
    """Its journal is in PostgreSQL only, from where the second process reads it."""
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    (tmp_path / "port.txt").write_text("port = 80\n")
    os.mkfifo(tmp_path / "begun")
    home = tmp_path / "home"
    environ = {**os.environ, "REFOLD_HOME": str(home), "REFOLD_SESSIONS": server.url}
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
        program = sys.executable, "-m", "tests.cluster.postgresql_session"
        return subprocess.Popen([*program, str(tmp_path), str(file), *session], env=environ)

    killed = start(first)
    try:
        assert (tmp_path / "begun").read_text() == "yes\n"  # it waits for the command
        session = max(
            item.id for item in sessions.sessions()
        )  # other tests have older ones
        writer = sessions.writer(session)
        assert (writer and writer.pid) == killed.pid
        with pytest.raises(Held, match=f"process {killed.pid} on "):
            sessions.delete(session)
    finally:
        killed.kill()
        killed.wait()
    assert start([{"text": "Done."}], session).wait(60) == 0

    events = [entry.event for entry in sessions.entries(session)[0]]
    ends = [event.outcome for event in events if isinstance(event, Ended)]
    assert ends == ["done", "done", "unknown"]
    assert isinstance(events[-1], TurnEnded)
    assert fold(sessions.entries(session)[0]).turn.answer == "Done."
    assert (tmp_path / "port.txt").read_text() == "port = 8080\n"
    assert sessions.check(session).damages == ()
    assert not (home / "sessions").exists()
    database.close()


def test_a_second_writer_of_a_session_in_the_database_is_refused(
    server: Server, database: Database, tenant: str
) -> None:
    other = Database(server.url, tenant)  # as of another process

    async def write_from_both() -> None:
        first, second = PostgreSQLStore(database, ONE), PostgreSQLStore(other, ONE)
        epoch = (await first.lease()).epoch
        with pytest.raises(Held, match=f"is being written by process {os.getpid()} on "):
            await second.lease()
        await first.append([b"a"], expect=0, epoch=epoch, head=(1, "a"))
        await first.release()
        assert (await second.lease()).epoch == epoch + 1
        with pytest.raises(Fenced):
            await first.append([b"b"], expect=1, epoch=epoch, head=(2, "b"))
        await second.release()

    anyio.run(write_from_both)
    other.close()


def test_a_worker_that_hangs_keeps_its_session_from_processes_without_a_claim_only(
    server: Server, database: Database, tenant: str
) -> None:
    other = Database(server.url, tenant)  # as of another process

    async def write_from_all() -> None:
        hung, successor = PostgreSQLStore(database, ONE), PostgreSQLStore(other, ONE)
        terminal = PostgreSQLStore(other, ONE)
        epoch = (await hung.lease(7)).epoch
        with pytest.raises(Held):
            await terminal.lease()
        assert (await successor.lease(8)).epoch == epoch + 1
        with pytest.raises(Fenced):
            await hung.append([b"a"], expect=0, epoch=epoch, head=(1, "a"))
        await successor.release()
        with pytest.raises(Held):  # the process that hangs is still there
            await terminal.lease()
        await hung.release()
        await terminal.lease()
        with pytest.raises(Held):
            await PostgreSQLStore(database, ONE).lease(9)
        await terminal.release()

    anyio.run(write_from_all)
    other.close()


def test_a_process_suspended_in_a_transaction_does_not_stop_other_writers(
    server: Server,
    database: Database,
    sessions: PostgreSQLSessions,
    tenant: str,
    tmp_path: Path,
) -> None:
    record(sessions, ONE, *opening_events(tmp_path, "Hello."))
    suspended = Database(server.url, tenant)  # as of another process
    locked, written = threading.Event(), threading.Event()
    touch = "update refold.journal set changed = changed where session = $1"

    async def touch_in_a_transaction(db: Connection) -> str:
        async with db.transaction():
            await db.execute(touch, ONE)
            locked.set()
            assert written.wait(
                30
            )  # stops the loop of the connections, as a suspension does
            return await db.execute(touch, ONE)

    with ThreadPoolExecutor() as pool:
        call = pool.submit(suspended.call, touch_in_a_transaction)
        assert locked.wait(10)
        assert database.call(lambda db: db.execute(touch, ONE)) == "UPDATE 1"
        assert not call.done()
        written.set()
        assert call.result() == "UPDATE 1"  # in another transaction
    suspended.close()


def test_a_session_continues_after_the_server_has_crashed(
    server: Server, sessions: PostgreSQLSessions, tmp_path: Path
) -> None:
    async def write() -> list[object]:
        recorder = Recorder(sessions.store(ONE))
        await recorder(*opening_events(tmp_path, "Kept."), kept=True)
        server.crash()
        await recorder(Said("After the crash."), kept=True)
        await recorder.close()
        return [event.text for event in _events(sessions, ONE) if isinstance(event, Said)]

    assert anyio.run(write) == ["Kept.", "After the crash."]
    assert sessions.check(ONE).damages == ()


@contextmanager
def _flushes_only_on_demand(server: Server) -> Generator[None]:
    """The server's own writer would flush 0.2 s after a commit."""
    server.execute("alter system set wal_writer_delay = '10s'", "select pg_reload_conf()")
    try:
        yield
    finally:
        server.execute("alter system reset wal_writer_delay", "select pg_reload_conf()")


def test_lines_lost_in_a_crash_of_the_server_are_not_acknowledged_as_kept(
    server: Server, database: Database
) -> None:
    async def write() -> Sequence[bytes]:
        store = PostgreSQLStore(database, ONE)
        epoch = (await store.lease()).epoch
        await store.append([b"a"], expect=0, epoch=epoch, head=(1, "a"))
        await store.keep()
        await store.append([b"b"], expect=1, epoch=epoch, head=(2, "b"))
        server.crash()
        for _ in range(2):
            with pytest.raises(Conflict, match="has 1 of 2 lines: the database crashed"):
                await store.keep()
        epoch = (await store.lease()).epoch
        await store.append([b"c"], expect=1, epoch=epoch, head=(2, "c"))
        await store.keep()
        await store.release()
        return await store.read()

    with _flushes_only_on_demand(server):
        assert anyio.run(write) == [b"a", b"c"]


class CrashingStore(PostgreSQLStore):
    """Its server crashes once, between the append and the flush."""

    crash: Callable[[], None] | None = None

    async def keep(self) -> None:
        if self.crash:
            crash, self.crash = self.crash, None
            crash()
        await super().keep()


def test_a_message_lost_in_a_crash_of_the_server_fails_and_can_be_sent_again(
    server: Server, sessions: PostgreSQLSessions, database: Database, tmp_path: Path
) -> None:
    async def write() -> list[object]:
        store = CrashingStore(database, ONE)
        recorder = Recorder(store)
        await recorder(*opening_events(tmp_path, "Kept."), kept=True)
        watch = recorder.hub.watch(kinds=(Said,))
        store.crash = server.crash
        with pytest.raises(Conflict):
            await recorder(Said("Lost."), kept=True)
        await recorder(Said("Sent again."), kept=True)
        await recorder.close()
        watch.close()
        watched = [frame.item.event.text async for frame in watch.frames()]
        assert watched == ["Sent again."]
        return [event.text for event in _events(sessions, ONE) if isinstance(event, Said)]

    with _flushes_only_on_demand(server):
        assert anyio.run(write) == ["Kept.", "Sent again."]
    assert sessions.check(ONE).damages == ()


def test_a_tenant_neither_sees_nor_writes_a_session_of_another_tenant(
    server: Server, sessions: PostgreSQLSessions, tmp_path: Path
) -> None:
    record(sessions, ONE, *opening_events(tmp_path, "A secret garden."))
    sessions.catalogue().cards()
    database = Database(_url_of_role(server, "refold_worker"), "somebody-else")
    theirs = PostgreSQLSessions(database, tmp_path / "theirs")

    assert list(theirs.sessions()) == []
    assert theirs.catalogue().search("garden", 5) == []
    assert theirs.entries(ONE, may_be_missing=True) == ([], "")
    for table in ("journal", "line", "blob", "card", "words"):
        count = f"select count(*) from refold.{table}"
        assert database.call(lambda db, count=count: db.fetchval(count)) == 0
    record(theirs, ONE, *opening_events(tmp_path, "Theirs."))  # under the same id
    assert [event.text for event in _events(sessions, ONE) if isinstance(event, Said)] == [
        "A secret garden."
    ]
    database.close()


def test_the_role_of_web_nodes_reads_and_searches_but_writes_no_line(
    server: Server, sessions: PostgreSQLSessions, tenant: str, tmp_path: Path
) -> None:
    record(sessions, ONE, *opening_events(tmp_path, "Paint the gate."))
    server.execute("drop role if exists node", "create role node login in role refold_web")
    database = Database(server.url_of("node"), tenant)
    other = PostgreSQLSessions(database, tmp_path / "seen")

    assert [hit.card.id for hit in other.catalogue().search("gate", 5)] == [ONE]
    with pytest.raises(JournalError, match="permission denied"):
        record(other, ONE, Said("Forged."))
    insert = "insert into refold.line(session, seq, line) values($1, 99, 'forged')"
    with pytest.raises(JournalError, match="permission denied"):
        database.call(lambda db: db.execute(insert, ONE))
    with pytest.raises(JournalError, match="permission denied"):
        other.delete(ONE)
    database.close()


def test_the_role_of_workers_writes_sessions_and_changes_no_line(
    server: Server, tenant: str, tmp_path: Path
) -> None:
    database = Database(_url_of_role(server, "refold_worker"), tenant)
    sessions = PostgreSQLSessions(database, tmp_path / "none")

    record(sessions, ONE, *opening_events(tmp_path, "Paint it."))
    fork = sessions.fork(ONE, None, 1_800_000_000.0)
    sessions.delete(ONE)

    assert [session.id for session in sessions.sessions()] == [fork.id]
    for change in ("update refold.line set line = 'x'", "delete from refold.line"):
        with pytest.raises(JournalError, match="permission denied"):
            database.call(lambda db, change=change: db.execute(change))
    database.close()


@pytest.mark.parametrize(
    ("typed", "marked"),
    [
        ("garden", ["garden"]),
        ("GARDEN*", ["gardens", "garden"]),
        ('"the gate"', ["the", "gate", "the"]),
        ("cafe", ["Café"]),
        ("codec.py", ["codec", "py"]),
        ("日志", ["日", "志"]),
    ],
)
def test_search_in_the_database_finds_and_marks_the_typed_words(
    sessions: PostgreSQLSessions, tmp_path: Path, typed: str, marked: list[str]
) -> None:
    text = "All gardens: the gate, the garden. See src/events/codec.py at the Café 日志."
    record(sessions, ONE, *opening_events(tmp_path, text))
    record(sessions, TWO, *opening_events(tmp_path, "the old gate"))

    hits = sessions.catalogue().search(typed, 5)

    assert hits[0].card.id == ONE
    marked_words = re.findall("\x02(.*?)\x03", hits[0].snippet)
    assert marked_words[: len(marked)] == marked or set(marked) <= set(marked_words)


def test_lines_that_were_added_are_indexed_by_the_next_query(
    sessions: PostgreSQLSessions, tmp_path: Path
) -> None:
    record(sessions, ONE, *opening_events(tmp_path, "One."))
    assert sessions.catalogue().cards()[0].events == 2
    record(sessions, ONE, Said("A bicycle."))

    assert [hit.seq for hit in sessions.catalogue().search("bicycle", 5)] == [3]
    assert sessions.catalogue().rebuild().messages == 2
    assert [hit.seq for hit in sessions.catalogue().search("bicycle", 5)] == [3]


def test_session_lists_of_the_database_are_read_from_indexes(database: Database) -> None:
    """So they take as long with a million sessions. 400 of the sessions here are in one
    directory.
    """
    fill(database, 4_000)
    lists = {
        "card_by_shelf": CardFilter(archived=False),
        "card_by_directory": CardFilter("/work/7"),
        "card_tagged": CardFilter(tags=frozenset(("blue",))),
        "card_open": CardFilter(open=True),
    }
    plans = dict[str, str]()
    for name, wanted in lists.items():
        query, values = list_query(wanted, (1_900_000_000.0, ONE))
        plans[name] = _plan(database, query, *values)
    plans["card_asking"] = _plan(database, ASKING_SQL, ["s00000001"])
    for name, key in (("card_by_id", ID_SQL), ("card_by_name", NAME_SQL)):
        query = f"select card {MATCHES_SQL.format(key=key)} limit 2"
        plans[name] = _plan(database, query, "name 30", "name 30\U0010ffff")
    plans["journal_unindexed"] = _plan(database, UNINDEXED_SQL)
    plans["journal_by_time"] = _plan(database, NEWEST_SQL, 1_900_000_000.0, ONE)

    for name, plan in plans.items():
        assert (name in plan, "Seq Scan" in plan) == (True, False), plan


def test_a_line_that_was_changed_by_hand_is_reported(
    server: Server, sessions: PostgreSQLSessions, tenant: str, tmp_path: Path
) -> None:
    record(sessions, ONE, *opening_events(tmp_path, "Pay 10."), Said("Thanks."))
    server.execute(
        "update refold.line set line = replace(encode(line, 'escape'), 'Pay 10', 'Pay 99')::bytea "
        f"where tenant = '{tenant}' and seq = 2"
    )

    (damage,) = sessions.check(ONE).damages

    assert damage.line == 2
    assert f"{ONE} in the database refold on this machine, line 2: " in str(damage)
    assert "Pay 99" not in str(_events(sessions, ONE))


def test_sessions_move_to_the_database_and_back_without_a_changed_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, database = tmp_path / "home", Database(server.url)
    files = JournalDirectory(home / "sessions")
    stored = PostgreSQLSessions(database, home / "sessions")
    record(
        files,
        ONE,
        *opening_events(tmp_path, "One."),
        ChildBorn("child-1", "call-1", "code", "Do."),
    )
    record(files, f"{ONE}/child-1", *opening_events(tmp_path, "Do."))
    blob = anyio.run(files.store(TWO).blobs.put, b"all of it")
    record(
        files,
        TWO,
        *opening_events(tmp_path, "Two."),
        Ended("call-1", "done", "a part", full_blob=blob),
    )
    lines = {id_: anyio.run(files.store(id_).read) for id_ in (ONE, f"{ONE}/child-1", TWO)}

    def refold(*arguments: str, url: str = "") -> str:
        environ = {**os.environ, "REFOLD_HOME": str(home), "REFOLD_SESSIONS": url}
        command = [sys.executable, "-m", "refold", "sessions", *arguments]
        return subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert refold("move", "--all", "--to", server.url, "--dry-run").count("\n") == 2
    assert files.exists(ONE)
    # Those in files are moved, too, when the database is in use already.
    assert f"{ONE}: 5 events moved" in refold(
        "move", "--all", "--to", server.url, url=server.url
    )
    assert list(files.sessions()) == []
    assert {id_: anyio.run(stored.store(id_).read) for id_ in lines} == lines
    assert stored.blob(TWO, blob) == b"all of it"
    shown = json.loads(refold("list", "--json", url=server.url).splitlines()[0])
    assert shown["id"] in (ONE, TWO)
    assert "One." in refold("show", ONE, url=server.url)

    refold("move", ONE, TWO, "--to", "files", url=server.url)
    assert {id_: list(anyio.run(files.store(id_).read)) for id_ in lines} == lines
    assert files.blob(TWO, blob) == b"all of it"
    assert not stored.exists(ONE)
    database.close()


def test_an_interrupted_move_continues_and_another_session_with_the_same_id_is_refused(
    sessions: PostgreSQLSessions, tmp_path: Path
) -> None:
    files = JournalDirectory(tmp_path / "files")
    record(files, ONE, *opening_events(tmp_path, "One."), Said("More."))

    async def begin() -> None:
        part = await files.store(ONE).read()
        target = sessions.store(ONE)
        epoch = (await target.lease()).epoch
        _, (_, head) = codec.decode(part[:2])
        await target.append(part[:2], expect=0, epoch=epoch, head=(head.seq, head.h))
        await target.release()

    anyio.run(begin)
    assert anyio.run(copy_session, files, sessions, ONE) == 3
    assert sessions.check(ONE).damages == ()
    record(sessions, TWO, *opening_events(tmp_path, "Another."))
    record(files, TWO, *opening_events(tmp_path, "Not the same."))
    with pytest.raises(Conflict, match=TWO):
        anyio.run(copy_session, files, sessions, TWO)


def test_a_blob_that_was_changed_by_hand_is_reported(
    server: Server, sessions: PostgreSQLSessions, tenant: str, tmp_path: Path
) -> None:
    blob = anyio.run(sessions.store(ONE).blobs.put, b"all of it")
    ended = Ended("call-1", "done", "a part", full_blob=blob)
    record(sessions, ONE, *opening_events(tmp_path, "One."), ended)
    server.execute(f"update refold.blob set content = 'forged' where tenant = '{tenant}'")

    (damage,) = sessions.check(ONE).damages

    assert "was changed after it was written" in str(damage)
    with pytest.raises(JournalError, match="was changed after it was written"):
        sessions.blob(ONE, blob)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("mysql://me:secret@host/x", BadInput, "must be the URL of a PostgreSQL database"),
        (
            "postgresql://me:secret@127.0.0.1:1/x",
            JournalError,
            "the database x on 127.0.0.1:1 cannot be reached",
        ),
        ("", BadInput, "refold cluster init"),
    ],
)
def test_an_unusable_database_is_one_error_without_its_password(
    server: Server, url: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        Database(url or server.url_of("administrator", "postgres")).call(
            lambda db: db.execute("select 1")
        )
    assert "secret" not in str(raised.value)


def _plan(database: Database, query: str, *values: object) -> str:
    """Return the plan of a query, as PostgreSQL explains it."""
    rows = database.call(lambda db: db.fetch(f"explain {query}", *values))
    return "\n".join(row[0] for row in rows)


def _url_of_role(server: Server, role: str) -> str:
    """Return the URL for a new login that has only this role."""
    login = f"login_{next(_NUMBERS)}"
    server.execute(f"create role {login} login in role {role}")
    return server.url_of(login)


def _events(sessions: SessionIndex, session: str) -> list[object]:
    return [entry.event for entry in sessions.entries(session)[0]]
