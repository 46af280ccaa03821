"""Stores a journal in an SQLite database, to show that the port fits a file that writers share.

It is only for tests: each call opens the database, and every commit waits for the disk.
"""

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from refold.errors import JournalError
from refold.journal.store.port import (
    Blobs,
    Fence,
    Lease,
    NoViews,
    Views,
    check_append,
    check_claim,
)

T = TypeVar("T")
_SCHEMA = """
create table if not exists journal(epoch integer, claim integer, head_seq integer, head_h text);
insert into journal select 0, 0, 0, '' where not exists (select 1 from journal);
create table if not exists line(seq integer primary key, line blob not null);
create table if not exists blob(name text primary key, content blob not null);
"""


class SQLiteStore:
    """The store of one writer. It has no lock: the last lease wins."""

    def __init__(self, file: Path) -> None:
        self._file, self._fence, self._epoch = file, Fence(), 0
        self.blobs: Blobs = SQLiteBlobs(file)
        self.views: Views = NoViews()

    async def read_claim(self) -> int:
        return await _in_thread(self._file, lambda db: _journal(db)[1])

    async def lease(self, claim: int = 0) -> Lease:
        def take(db: sqlite3.Connection) -> Lease:
            epoch, recorded, seq, h = _journal(db)
            if self._epoch:
                check_append(self._epoch, epoch, 0, 0)
            check_claim(claim, recorded)
            db.execute(
                "update journal set epoch = ?, claim = ?", (epoch + 1, claim or recorded)
            )
            return Lease(epoch + 1, head=(seq, h))

        with self._fence:
            lease = await _in_thread(self._file, take)
        self._epoch = lease.epoch
        return lease

    async def release(self) -> None:
        self._epoch = 0

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        def write(db: sqlite3.Connection) -> None:
            (count,) = db.execute("select count(*) from line").fetchone()
            check_append(epoch, _journal(db)[0], expect, count)
            db.executemany("insert into line values(?, ?)", enumerate(lines, expect + 1))
            db.execute("update journal set head_seq = ?, head_h = ?", head)

        with self._fence:
            await _in_thread(self._file, write)

    async def keep(self) -> None:
        """Do nothing: a commit is on the disk already."""

    async def read(self, after: int = 0) -> Sequence[bytes]:
        query = "select line from line where seq > ? order by seq"
        return await _in_thread(
            self._file, lambda db: [line for (line,) in db.execute(query, (after,))]
        )


class SQLiteBlobs:
    def __init__(self, file: Path) -> None:
        self._file = file

    async def put(self, blob: bytes) -> str:
        name = sha256(blob).hexdigest()
        query = "insert or ignore into blob values(?, ?)"

        def write(db: sqlite3.Connection) -> None:
            db.execute(query, (name, blob))

        await _in_thread(self._file, write)
        return name

    async def get(self, name: str) -> bytes:
        query = "select content from blob where name = ?"
        row = await _in_thread(self._file, lambda db: db.execute(query, (name,)).fetchone())
        if row is None:
            raise JournalError(f"there is no blob {name!r}")
        return row[0]


def _journal(db: sqlite3.Connection) -> tuple[int, int, int, str]:
    return db.execute("select epoch, claim, head_seq, head_h from journal").fetchone()


async def _in_thread(file: Path, function: Callable[[sqlite3.Connection], T]) -> T:
    def run() -> T:
        with _transaction(file) as db:
            return function(db)

    return await to_thread.run_sync(run)


@contextmanager
def _transaction(file: Path) -> Generator[sqlite3.Connection]:
    db = sqlite3.connect(file, isolation_level=None)
    try:
        db.executescript(_SCHEMA)
        db.execute("begin immediate")  # no other writer between a check and its lines
        with db:
            yield db
    finally:
        db.close()
