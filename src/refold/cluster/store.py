"""A store of one session's lines in PostgreSQL.

A line is *written* when its transaction is committed, before the server has flushed it, and *kept*
once a later commit was flushed: the server flushes its log in order. One function of the database
appends, and it checks writer and number of lines in the statement that reserves their place. Blobs are
in `blobs`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from refold.cluster.blobs import SessionBlobs, TenantBlobs
from refold.cluster.database import Connection, Database
from refold.errors import Conflict, Fenced, Held, JournalError
from refold.journal.store.port import Blobs, Fence, Lease, NoViews, Views
from refold.journal.store.writer_lock import Writer, current_writer, describe_holder

_LEASE_SQL = """
insert into refold.journal(session, epoch, claim, holder) values($1, 1, $2, $4)
on conflict (tenant, session) do update set epoch = journal.epoch + 1,
  claim = greatest(journal.claim, $2), holder = $4
where ($3 = 0 or journal.epoch = $3) and ($2 = 0 or $2 >= journal.claim)
returning epoch, head_seq, head_hash
"""
_OF_SESSION_SQL = "where tenant = refold.tenant() and session = $1"
_APPEND_SQL = "select refold.append_lines($1, $2, $3, $4, $5, $6)"
# Flushes the log with its commit. A transaction that only took a number would not: it has written nothing.
_FLUSH_SQL = "select pg_logical_emit_message(true, 'refold', '')::text"
_OUTCOME_WRITTEN, _OUTCOME_FENCED = 0, 1


class PostgreSQLStore:
    """Lets one writer write a session, which has its lock: alone, or, with a claim, shared."""

    def __init__(
        self, database: Database, session: str, blobs: TenantBlobs | None = None
    ) -> None:
        self._database, self._session = database, session
        self._fence, self._epoch, self._is_all_kept = Fence(), 0, True
        self.blobs: Blobs = SessionBlobs(blobs or TenantBlobs(database), session)
        self.views: Views = NoViews()

    async def read_claim(self) -> int:
        query = f"select claim from refold.journal {_OF_SESSION_SQL}"
        return await self._value(query, self._session) or 0

    async def lease(self, claim: int = 0) -> Lease:
        with self._fence:
            # Workers share the lock: one that hangs does not keep the session from its successor.
            if not await self._database.lock(self._session, self, shared=bool(claim)):
                query = f"select holder from refold.journal {_OF_SESSION_SQL}"
                holder = await self._value(query, self._session) or ""
                raise held_error(self._session, parse_holder(holder))
            try:
                lease = await self._take(claim)
            except BaseException:
                await self._database.unlock(self._session, self)
                raise
        self._epoch = lease.epoch
        return lease

    async def release(self) -> None:
        try:
            await self.keep()
        finally:
            self._epoch = 0
            await self._database.unlock(self._session, self)

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        values = self._session, epoch, expect, *head, list(lines)
        with self._fence:
            outcome = await self._value(_APPEND_SQL, *values)
            if outcome == _OUTCOME_FENCED:
                raise Fenced(f"writer {epoch} lost {self._session} to a later one")
            if outcome != _OUTCOME_WRITTEN:
                raise Conflict(f"{self._session} does not have {expect} lines")
        self._is_all_kept = False

    async def keep(self) -> None:
        if not self._is_all_kept:
            self._is_all_kept = True
            try:
                await self._value(_FLUSH_SQL)
            except JournalError:
                self._is_all_kept = False
                raise

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return await self._database.run(lambda db: read_lines(db, self._session, after))

    async def _take(self, claim: int) -> Lease:
        holder = msgspec.json.encode(current_writer(0, claim)).decode()
        values = self._session, claim, self._epoch, holder
        row = await self._database.run(lambda db: db.fetchrow(_LEASE_SQL, *values))
        if row is None:
            raise Fenced(f"a later writer has {self._session}")
        return Lease(row["epoch"], head=(row["head_seq"], row["head_hash"]))

    async def _value(self, query: str, *values: object) -> Any:
        return await self._database.run(lambda db: db.fetchval(query, *values))


def held_error(session: str, holder: Writer) -> Held:
    return Held(
        f"{session} is being written by {describe_holder(holder)}: end that one first"
    )


def parse_holder(text: str) -> Writer:
    """Read from the row of a session which process leased it last."""
    try:
        return msgspec.json.decode(text, type=Writer)
    except msgspec.DecodeError:
        return Writer()


async def read_lines(db: Connection, session: str, after: int = 0) -> Sequence[bytes]:
    query = f"select line from refold.line {_OF_SESSION_SQL} and seq > $2 order by seq"
    return [row["line"] for row in await db.fetch(query, session, after)]
