"""Stores the lines of one session in PostgreSQL.

A line is *written* when its transaction is committed, which may be before the server has
flushed it. It is *kept* once a later commit was flushed, because the server flushes its log
in order. One function of the database appends lines: a single statement checks the writer
and the number of lines, and reserves the place of the new ones. Blobs are in `blobs`.
"""

from collections.abc import Sequence
from contextlib import suppress
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
# The message flushes the log with its commit. A transaction that only took a number would not: it has written
# nothing. The server may have crashed before, so the row says whether the lines are there.
_KEEP_SQL = (
    "select epoch, lines, pg_logical_emit_message(true, 'refold', '')::text "
    f"from refold.journal {_OF_SESSION_SQL}"
)
_OUTCOME_WRITTEN, _OUTCOME_FENCED = 0, 1


class PostgreSQLStore:
    """Implements `Store` for one session.

    A writer without a claim locks the session alone. Writers with claims share the lock,
    and only the one with the newest claim can append.
    """

    def __init__(
        self, database: Database, session: str, blobs: TenantBlobs | None = None
    ) -> None:
        self._database, self._session = database, session
        self._fence = Fence()
        self._epoch = 0
        self._written = 0  # the number of lines after the last append
        self._is_all_kept = True  # whether these lines are kept
        self.blobs: Blobs = SessionBlobs(blobs or TenantBlobs(database), session)
        self.views: Views = NoViews()

    async def read_claim(self) -> int:
        query = f"select claim from refold.journal {_OF_SESSION_SQL}"
        return await self._value(query, self._session) or 0

    async def lease(self, claim: int = 0) -> Lease:
        """Take the writer lock under this claim, and return the lease.

        `claim` 0 means without a claim. Raises `Held` if another writer has the lock, and
        `Fenced` if a later writer had it.
        """
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
        """Keep what was written, and release the lock."""
        try:
            with suppress(Fenced):  # the later writer has the session
                await self.keep()
        finally:
            self._epoch = 0
            await self._database.unlock(self._session, self)

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        """Write the lines after the first `expect` lines: all or none.

        Raises `Conflict` if the session has another number of lines, and `Fenced` after a
        later writer.
        """
        values = self._session, epoch, expect, *head, list(lines)
        with self._fence:
            outcome = await self._value(_APPEND_SQL, *values)
            if outcome == _OUTCOME_FENCED:
                raise Fenced(f"writer {epoch} lost {self._session} to a later one")
            if outcome != _OUTCOME_WRITTEN:
                raise Conflict(f"{self._session} does not have {expect} lines")
        self._written = expect + len(lines)
        self._is_all_kept = False

    async def keep(self) -> None:
        """Make what was written survive a crash of the database's machine."""
        if not self._is_all_kept:
            # Set before the flush, because an append during the flush unsets it.
            self._is_all_kept = True
            try:
                await self._flush(self._written)
            except JournalError:
                self._is_all_kept = False
                raise

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return await self._database.run(lambda db: read_lines(db, self._session, after))

    async def _flush(self, written: int) -> None:
        """Flush the log of the database, and check that the session has `written` lines.

        Raises `Fenced` if a later writer has the session, and `Conflict` if lines were lost.
        """
        row = await self._database.run(lambda db: db.fetchrow(_KEEP_SQL, self._session))
        if row is None or row["epoch"] != self._epoch:
            raise Fenced(f"writer {self._epoch} lost {self._session} to a later one")
        if row["lines"] < written:
            lost = f"{self._session} has {row['lines']} of {written} lines"
            raise Conflict(f"{lost}: the database crashed before it had stored the others")

    async def _take(self, claim: int) -> Lease:
        """Become the writer of the session under this claim; 0 means without a claim.

        Raises `Fenced` if a later writer has the session.
        """
        holder = msgspec.json.encode(current_writer(0, claim)).decode()
        values = self._session, claim, self._epoch, holder
        row = await self._database.run(lambda db: db.fetchrow(_LEASE_SQL, *values))
        if row is None:
            raise Fenced(f"a later writer has {self._session}")
        self._is_all_kept = True  # the commit of the lease has flushed what was there
        return Lease(row["epoch"], head=(row["head_seq"], row["head_hash"]))

    async def _value(self, query: str, *values: object) -> Any:
        return await self._database.run(lambda db: db.fetchval(query, *values))


def held_error(session: str, holder: Writer) -> Held:
    """Return the error for a session that another process, `holder`, is writing."""
    return Held(
        f"{session} is being written by {describe_holder(holder)}: end that one first"
    )


def parse_holder(text: str) -> Writer:
    """Return the process that leased a session last; an empty `Writer` if `text` does not say.

    `text` is from the row of the session.
    """
    try:
        return msgspec.json.decode(text, type=Writer)
    except msgspec.DecodeError:
        return Writer()


async def read_lines(db: Connection, session: str, after: int = 0) -> Sequence[bytes]:
    """Return the lines of a session after line `after`."""
    query = f"select line from refold.line {_OF_SESSION_SQL} and seq > $2 order by seq"
    return [row["line"] for row in await db.fetch(query, session, after)]
