"""The blobs of a tenant: objects in its bucket, or rows in the database if it has no bucket.

While the bucket cannot be reached, new blobs become rows, so that no turn waits or fails.
`sweep` moves these rows to the bucket later. A blob belongs to one session and is deleted
with it, even if its writer died before it recorded the event that names the blob.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from anyio import to_thread
from msgspec import Struct

from refold.cluster.bucket import BucketError, TenantObjects
from refold.cluster.database import Database
from refold.errors import JournalError
from refold.journal.store.blobs import is_name

MAX_ROW_BYTES = 100 * 1024 * 1024
_BLOBS_FOLDER = "blobs"  # in the folder of the session
_OWN_SQL = "where tenant = refold.tenant() and session = $1"
_PUT_SQL = "insert into refold.blob(session, name, content) values($1, $2, $3) on conflict do nothing"
_SIZE_SQL = """
select count(*), coalesce(sum(length(content)), 0)::bigint from refold.blob
where tenant = refold.tenant() and (session = $1 or starts_with(session, $1 || '/'))
"""
_ORPHAN_AGE = timedelta(days=1)  # a session's first blob may be there before its first line


class SweepResult(Struct, frozen=True):
    """What `sweep` did: `moved` rows became objects, and `deleted` objects of sessions that no
    longer exist were deleted.
    """

    moved: int
    deleted: int


class TenantBlobs:
    """The blobs of the tenant whose rows `database` can see. Its methods block: call them
    in a thread.
    """

    def __init__(self, database: Database, objects: TenantObjects | None = None) -> None:
        self._database, self._objects = database, objects

    def put(self, session: str, blob: bytes) -> str:
        """Store a blob, and return its name once the database or the bucket keeps it."""
        name = sha256(blob).hexdigest()
        bucket_error: BucketError | None = None
        if self._objects is not None:
            try:
                self._objects.put(_key(session, name), blob)
                return name
            except BucketError as error:
                bucket_error = error
        self._put_row(session, name, blob, bucket_error)
        return name

    def get(self, session: str, name: str) -> bytes:
        """Return a blob. Raises `JournalError` if it is missing, or if its content does not
        have the hash in its name.
        """
        if not is_name(name):
            raise JournalError(f"{name!r} is not the name of a blob: that is 64 hex digits")
        blob = self._content(session, name)
        if blob is None:
            raise JournalError(f"the blob {name} of {session} is missing")
        if sha256(blob).hexdigest() != name:
            raise JournalError(
                f"the blob {name} of {session} was changed after it was written"
            )
        return blob

    def read_unchecked(self, session: str, name: str) -> bytes:
        """Return the content of a blob without comparing it with its name; b"" if it is
        missing.
        """
        return self._content(session, name) or b""

    def names(self, session: str) -> Sequence[str]:
        """Return the names of the blobs of this session, without those of its subagents."""
        query = f"select name from refold.blob {_OWN_SQL}"
        rows = self._database.call(lambda db: db.fetch(query, session))
        names = {row["name"]: None for row in rows}
        if self._objects is not None:
            for item in self._objects.list(f"{session}/{_BLOBS_FOLDER}"):
                _, _, name = item.key.rpartition("/")
                names[name] = None
        return [name for name in names if is_name(name)]

    def size(self, session: str) -> tuple[int, int]:
        """Return the number of the session's blobs, and their bytes.

        The blobs of its subagents and checkpoints are included.
        """
        row: Any = self._database.call(lambda db: db.fetchrow(_SIZE_SQL, session))
        count, total_bytes = row[0], row[1]
        if self._objects is not None:
            for item in self._objects.list(session):
                count += 1
                total_bytes += item.size
        return count, total_bytes

    def delete_objects(self, session: str) -> None:
        """Delete the objects of the session and its subagents. Rows are deleted with the
        row of the session.
        """
        if self._objects is not None:
            self._objects.delete_below(session)

    def sweep(self) -> SweepResult:
        """Move rows to the bucket, and delete the objects of sessions that do not exist."""
        if self._objects is None:
            return SweepResult(moved=0, deleted=0)
        query = "select session, name from refold.blob where tenant = refold.tenant()"
        rows = self._database.call(lambda db: db.fetch(query))
        for row in rows:
            self._move(row["session"], row["name"])
        deleted = self._delete_orphans(self._objects)
        return SweepResult(moved=len(rows), deleted=deleted)

    def _move(self, session: str, name: str) -> None:
        """Store a row as an object, then delete the row."""
        assert self._objects is not None, "`sweep` has checked it"
        blob = self._row(session, name)
        if blob is not None:
            self._objects.put(_key(session, name), blob)
            query = f"delete from refold.blob {_OWN_SQL} and name = $2"
            self._database.call(lambda db: db.execute(query, session, name))

    def _delete_orphans(self, objects: TenantObjects) -> int:
        """Delete old objects of sessions that do not exist, and return their number."""
        query = "select session from refold.journal where tenant = refold.tenant()"
        rows = self._database.call(lambda db: db.fetch(query))
        existing = {row["session"] for row in rows}
        before = datetime.now(UTC) - _ORPHAN_AGE
        orphans = [
            item.key
            for item in objects.list()
            if item.key.partition("/")[0] not in existing and item.changed < before
        ]
        objects.delete(orphans)
        return len(orphans)

    def _content(self, session: str, name: str) -> bytes | None:
        """Return a blob from the database or the bucket; None if neither has it."""
        blob = self._row(session, name)
        if blob is None and self._objects is not None:
            blob = self._objects.get(_key(session, name))
        return blob

    def _row(self, session: str, name: str) -> bytes | None:
        query = f"select content from refold.blob {_OWN_SQL} and name = $2"
        return self._database.call(lambda db: db.fetchval(query, session, name))

    def _put_row(
        self, session: str, name: str, blob: bytes, bucket_error: BucketError | None = None
    ) -> None:
        """Store a blob as a row.

        If the blob is too large for a row, raise `bucket_error`, which says why the bucket
        did not take the blob. With None there is no bucket, and a `JournalError` says so.
        """
        if len(blob) > MAX_ROW_BYTES:
            raise bucket_error or JournalError(
                f"a blob of {session} has {len(blob) >> 20} MiB, and the database takes at most "
                f"{MAX_ROW_BYTES >> 20}: name a bucket with REFOLD_BUCKET"
            )
        self._database.call(lambda db: db.execute(_PUT_SQL, session, name, blob))


class SessionBlobs:
    """Implements `Blobs` for one session."""

    def __init__(self, blobs: TenantBlobs, session: str) -> None:
        self._blobs, self._session = blobs, session

    async def put(self, blob: bytes) -> str:
        return await to_thread.run_sync(partial(self._blobs.put, self._session, blob))

    async def get(self, name: str) -> bytes:
        return await to_thread.run_sync(partial(self._blobs.get, self._session, name))


def _key(session: str, name: str) -> str:
    return f"{session}/{_BLOBS_FOLDER}/{name}"
