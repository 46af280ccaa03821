"""Journals in PostgreSQL, and a server of a test's own: they show that the ports are real.

No product: there is no pool of connections, no other tenant, no migration. A line is *written*
when it is committed without a wait for the disk, and *kept* with the next commit that waits, for
the server flushes its log in order.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from refold.errors import Conflict, Fenced, JournalError
from refold.journal.events import codec
from refold.journal.store.port import Blobs, Fence, Lease, NoViews, Store, Views

T = TypeVar("T")

_SCHEMA = """
create table journal(
  id text primary key, epoch bigint not null, claim bigint not null, lines bigint not null default 0,
  head_seq bigint not null default 0, head_h text not null default '', changed timestamptz);
create table line(session text, seq bigint, line bytea not null, primary key(session, seq));
create table blob(session text, name text, content bytea not null, primary key(session, name));
"""
_LEASE = """
insert into journal(id, epoch, claim) values($1, 1, $2) on conflict(id) do update
set epoch = journal.epoch + 1, claim = greatest(journal.claim, $2)
where ($3 = 0 or journal.epoch = $3)
  and ($2 = 0 or $2 >= journal.claim)
returning epoch, head_seq, head_h
"""
_APPEND = """
update journal set lines = lines + $4, head_seq = $5, head_h = $6, changed = clock_timestamp()
where id = $1 and epoch = $2 and lines = $3
"""
_PROGRAMS = "initdb", "postgres"
_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
_START_SECONDS = 30


@contextmanager
def postgresql_server() -> Generator[str]:
    """The directory of the socket of a new server, which has an empty database. Skips without one."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    programs = _programs()
    # Short, for the path of a socket has at most 107 bytes; and not in a directory of root's.
    directory = Path(tempfile.mkdtemp(prefix="refold-pg-"))
    as_user = ["setpriv", "--pdeathsig", "SIGQUIT"]
    if os.geteuid() == 0:
        shutil.chown(directory, _UNPRIVILEGED)
        as_user += ["--reuid", _UNPRIVILEGED, "--clear-groups", "--regid", "nogroup"]
    data = directory / "data"
    try:
        subprocess.run(
            [*as_user, programs["initdb"], "-D", data, "-A", "trust", "-U", "refold", "-E", "UTF8",
             "--locale=C", "--no-sync", "--no-instructions"],
            check=True, cwd=directory, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(
                [*as_user, programs["postgres"], "-D", data, "-k", directory,
                 "-c", "listen_addresses=", "-c", "shared_buffers=16MB"],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            anyio.run(_make_tables, str(directory))
            yield str(directory)
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(directory)


@asynccontextmanager
async def connect(server: str) -> AsyncGenerator[Any]:
    import asyncpg

    try:
        connection = await asyncpg.connect(host=server, user="refold", database="postgres")
        try:
            yield connection
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise JournalError(f"PostgreSQL at {server} failed: {error}") from error


class PostgreSQLStore:
    """The store of one writer of a session. There is no lock: the last one that leases has it."""

    def __init__(self, server: str, session: str) -> None:
        self._server, self._session = server, session
        self._fence, self._epoch, self._all_is_kept = Fence(), 0, True
        self.blobs: Blobs = PostgreSQLBlobs(server, session)
        self.views: Views = NoViews()

    async def read_claim(self) -> int:
        query = "select claim from journal where id = $1"
        async with connect(self._server) as db:
            return await db.fetchval(query, self._session) or 0

    async def lease(self, claim: int = 0) -> Lease:
        with self._fence:
            async with connect(self._server) as db:
                row = await db.fetchrow(_LEASE, self._session, claim, self._epoch)
            if row is None:
                raise Fenced(f"a later writer than {self._epoch} has {self._session}")
        self._epoch = row["epoch"]
        return Lease(self._epoch, head=(row["head_seq"], row["head_h"]))

    async def release(self) -> None:
        await self.keep()
        self._epoch = 0

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        with self._fence:
            async with connect(self._server) as db, db.transaction():
                await db.execute("set local synchronous_commit = off")
                values = self._session, epoch, expect, len(lines), *head
                if await db.execute(_APPEND, *values) != "UPDATE 1":
                    await self._refuse(db, epoch, expect)
                rows = [
                    (self._session, expect + n, each) for n, each in enumerate(lines, 1)
                ]
                await db.executemany("insert into line values($1, $2, $3)", rows)
        self._all_is_kept = False

    async def _refuse(self, db: Any, epoch: int, expect: int) -> None:
        query = "select epoch, lines from journal where id = $1"
        row = await db.fetchrow(query, self._session)
        if row is None or row["epoch"] != epoch:
            raise Fenced(f"writer {epoch} lost {self._session} to another one")
        raise Conflict(f"expected {expect} lines in {self._session}, found {row['lines']}")

    async def keep(self) -> None:
        if not self._all_is_kept:
            async with connect(self._server) as db:
                await db.execute("select pg_current_xact_id()")  # a commit that is flushed
            self._all_is_kept = True

    async def read(self, after: int = 0) -> Sequence[bytes]:
        query = "select line from line where session = $1 and seq > $2 order by seq"
        async with connect(self._server) as db:
            return [row["line"] for row in await db.fetch(query, self._session, after)]


class PostgreSQLBlobs:
    def __init__(self, server: str, session: str) -> None:
        self._server, self._session = server, session

    async def put(self, blob: bytes) -> str:
        name = sha256(blob).hexdigest()
        query = "insert into blob values($1, $2, $3) on conflict do nothing"
        async with connect(self._server) as db:
            await db.execute(query, self._session, name, blob)
        return name

    async def get(self, name: str) -> bytes:
        query = "select content from blob where session = $1 and name = $2"
        async with connect(self._server) as db:
            content = await db.fetchval(query, self._session, name)
        if content is None:
            raise JournalError(f"the session {self._session} has no blob {name!r}")
        return content


def _programs() -> dict[str, str]:
    """Where the programs of the server are. Debian has them in no directory of PATH."""
    installed = map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    path = os.pathsep.join((os.environ.get("PATH", ""), *installed))
    programs = {name: shutil.which(name, path=path) for name in (*_PROGRAMS, "setpriv")}
    for name, program in programs.items():
        if program is None:
            pytest.skip(f"PostgreSQL is not installed: there is no {name}")
    return {name: program for name, program in programs.items() if program}


async def _make_tables(server: str) -> None:
    with anyio.fail_after(_START_SECONDS):
        while True:
            try:
                async with connect(server) as db:
                    await db.execute(_SCHEMA)
                    return
            except JournalError as error:
                if not isinstance(error.__cause__, OSError) and "starting" not in str(
                    error
                ):
                    raise
                await anyio.sleep(0.05)  # the server has no other sign that it is ready


class PostgreSQLLines:
    """All sessions of a server, for `SessionsOfLines`. Its functions block."""

    def __init__(self, server: str) -> None:
        self._server = server

    def changed(self) -> Mapping[str, float]:
        query = "select id, extract(epoch from changed)::float8 as at from journal where lines > 0"
        return {row["id"]: row["at"] for row in self._fetch(query)}

    def lines(self, session: str) -> Sequence[bytes]:
        query = "select line from line where session = $1 order by seq"
        return [row["line"] for row in self._fetch(query, session)]

    def blobs(self, session: str) -> Mapping[str, bytes]:
        query = "select name, content from blob where session = $1"
        return {row["name"]: row["content"] for row in self._fetch(query, session)}

    def store(self, session: str) -> Store:
        return PostgreSQLStore(self._server, session)

    def put(self, session: str, lines: Sequence[bytes], blobs: Mapping[str, bytes]) -> None:
        async def write() -> None:
            store = self.store(session)
            for blob in blobs.values():
                await store.blobs.put(blob)
            *_, (_, head) = codec.decode(lines)
            epoch = (await store.lease()).epoch
            await store.append(lines, expect=0, epoch=epoch, head=(head.seq, head.h))
            await store.release()

        _in_a_thread(write)

    def remove(self, session: str) -> None:
        for table, column in (("line", "session"), ("blob", "session"), ("journal", "id")):
            self._fetch(f"delete from {table} where {column} = $1", session)

    def set_changed(self, session: str, at: float) -> None:
        self._fetch(
            "update journal set changed = to_timestamp($2) where id = $1", session, at
        )

    def _fetch(self, query: str, *values: object) -> Sequence[Any]:
        async def fetch() -> Sequence[Any]:
            async with connect(self._server) as db:
                return await db.fetch(query, *values)

        return _in_a_thread(fetch)


def _in_a_thread(function: Callable[[], Awaitable[T]]) -> T:
    """For the caller may be in an event loop, which waits meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, function).result()
