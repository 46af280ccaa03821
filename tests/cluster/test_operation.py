"""What an operator relies on: a backup, the refusal of newer tables, and `refold cluster check`."""

import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.cluster.database import Database
from refold.cluster.database_rights import find_excess_rights
from refold.cluster.schema import SCHEMA_REVISION
from refold.cluster.sessions import PostgreSQLSessions
from refold.errors import BadInput, JournalError
from refold.testing.session_index_conformance import opening_events, record
from tests.cluster.postgresql import Server
from tests.cluster.test_postgresql_sessions import ONE

pytestmark = pytest.mark.peer
LOGINS = {"operation_worker": "refold_worker", "operation_web": "refold_web"}


@pytest.fixture
def logins(server: Server) -> dict[str, str]:
    """URLs of a worker's login and a web node's."""
    for login, role in LOGINS.items():
        server.execute(
            f"do $$ begin create role {login} login in role {role}; "
            "exception when duplicate_object then null; end $$"
        )
    return {role: server.url_of(login) for login, role in LOGINS.items()}


@pytest.fixture
def copy(server: Server, logins: dict[str, str]) -> Generator[str]:
    """Yield the name of another database, with what a backup of the first has."""
    program = _find_program("pg_dump"), _find_program("pg_restore")
    server.execute("create database restored owner refold_owner", database="postgres")
    try:
        source, target = (
            server.url_of("administrator", name) for name in ("refold", "restored")
        )
        dump = subprocess.run([program[0], "-Fc", source], check=True, capture_output=True)
        subprocess.run(
            [program[1], "--exit-on-error", "-d", target], input=dump.stdout, check=True
        )
        yield "restored"
    finally:
        server.execute("drop database restored with (force)", database="postgres")


def _find_program(name: str) -> str:
    path = os.pathsep.join(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    program = shutil.which(name) or shutil.which(name, path=path)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


@pytest.fixture
def stored_sessions(
    server: Server, database: Database, tmp_path: Path
) -> PostgreSQLSessions:
    sessions = PostgreSQLSessions(database, tmp_path / "sessions")
    record(sessions, ONE, *opening_events(tmp_path, "Paint the gate."))
    return sessions


def test_a_restored_backup_continues_its_sessions_with_the_same_rights(
    stored_sessions: PostgreSQLSessions,
    tenant: str,
    server: Server,
    copy: str,
    tmp_path: Path,
) -> None:
    """The other database has the same lines, chain, search and roles; new lines are written
    to it only.
    """
    restored = Database(server.url_of("operation_worker", copy), tenant)
    web = Database(server.url_of("operation_web", copy), tenant)
    sessions = PostgreSQLSessions(restored, tmp_path / "restored")
    before = stored_sessions.entries(ONE)[0]

    restored.check()
    assert sessions.entries(ONE)[0] == before
    assert sessions.check(ONE).damages == ()
    assert [hit.card.id for hit in sessions.catalogue().search("gate", 5)] == [ONE]
    _, *more = opening_events(tmp_path, "Now the fence.")
    record(sessions, ONE, *more)
    assert len(sessions.entries(ONE)[0]) > len(before)
    assert sessions.check(ONE).damages == ()
    assert stored_sessions.entries(ONE)[0] == before
    with pytest.raises(
        JournalError, match=r"permission denied.*the login that owns the tables"
    ):
        web.call(lambda db: db.execute("delete from refold.line"))
    assert find_excess_rights(restored, server.url_of("operation_worker", copy)) == []
    for database in (restored, web):
        database.close()


def test_a_process_older_than_the_database_schema_is_refused(server: Server) -> None:
    """The error names both revisions. The process changes nothing; one that runs already
    continues.
    """
    server.execute("create database newer owner refold_owner", database="postgres")
    url = server.url_of("refold_owner", "newer")
    running, starting = Database(url), Database(url)
    running.prepare()
    running.check()
    running.call(lambda db: db.execute("update refold.revision set version_num = '9999'"))

    for refuse in (starting.check, starting.prepare):
        with pytest.raises(
            BadInput, match=rf"revision 9999; this one knows {SCHEMA_REVISION}"
        ):
            refuse()
    running.check()
    query = "select version_num from refold.revision"
    assert running.call(lambda db: db.fetchval(query)) == "9999"
    for database in (running, starting):
        database.close()


@pytest.mark.parametrize(
    ("damage", "repair", "problem"),
    [
        (["grant insert on refold.line to refold_web"],
         ["revoke insert on refold.line from refold_web"],
         "'operation_web' is a login of web nodes and may write lines of journals"),
        (["grant refold_worker to operation_web"], ["revoke refold_worker from operation_web"],
         "'operation_web' is a login of web nodes and may read sealed secrets"),
        (["alter role operation_web bypassrls"], ["alter role operation_web nobypassrls"],
         "'operation_web' is a login of web nodes and may read the rows of every tenant at once"),
        (["alter table refold.person no force row level security"],
         ["alter table refold.person force row level security"],
         "the table refold.person has no forced row-level security"),
        (["create table refold.notes(tenant text)"], ["drop table refold.notes"],
         "the table refold.notes has no forced row-level security"),
    ],
)  # fmt: skip
def test_cluster_check_reports_database_rights_beyond_those_of_a_role(
    server: Server, logins: dict[str, str], damage: Sequence[str], repair: Sequence[str],
    problem: str,
) -> None:  # fmt: skip
    database = Database(logins["refold_worker"])
    assert find_excess_rights(database, logins["refold_worker"]) == []

    server.execute(*damage)
    try:
        problems = find_excess_rights(database, logins["refold_worker"])
    finally:
        server.execute(*repair)
        database.close()

    assert any(text.startswith(problem) for text in problems), problems


@pytest.mark.parametrize("password", ["refold", "password", "operation_worker", ""])
def test_cluster_check_fails_for_a_password_that_is_easy_to_guess(
    logins: dict[str, str], password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = logins["refold_worker"].replace("@", f":{password}@")

    assert main(["cluster", "check", url]) == 1
    error = capsys.readouterr().err
    assert "the password of 'operation_worker' is one that everybody tries first" in error
    assert main(["cluster", "check", logins["refold_worker"]]) == 0
