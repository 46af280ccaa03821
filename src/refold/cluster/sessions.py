"""Implements `journal.session_index` for the sessions in a PostgreSQL database.

Some operations need a session as files: a fork, a check, an export. They use a copy of the
session in a temporary directory.
"""

import os
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from msgspec.structs import replace

from refold.cluster.blobs import TenantBlobs
from refold.cluster.bucket import TenantObjects
from refold.cluster.card_index import PostgreSQLCards
from refold.cluster.database import Connection, Database, Row
from refold.cluster.store import (
    PostgreSQLStore,
    held_error,
    parse_holder,
    read_lines,
)
from refold.errors import JournalError
from refold.journal import find_session
from refold.journal.catalogue.card_filter import CardFilter
from refold.journal.copy_session import copy_session
from refold.journal.events import codec
from refold.journal.events.kinds import Entry, Event, SessionStarted
from refold.journal.journal_directory import JournalDirectory, directories_of, random_id
from refold.journal.session_index import (
    Progress,
    SessionIndex,
    SessionWriter,
    StoredSession,
)
from refold.journal.state.children import CHILD_PATTERN
from refold.journal.state.event_history import EventHistory, LineEntries
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store import log_file, writer_lock
from refold.journal.store.blobs import DIRECTORY_NAME as BLOBS_DIRECTORY
from refold.journal.store.delete import SessionSize
from refold.journal.store.tree_reader import TreeFollower, entries_of, tree_of

if TYPE_CHECKING:
    from refold.journal.bundle.pack import SessionPacker
    from refold.journal.fork import Fork
    from refold.journal.state.session_tree import Node
    from refold.journal.store.check import JournalCheck

_MAX_MEMORY_BYTES = 4_000_000  # of an export; a larger one is written to the disk
_PIECE_BYTES = 65_536
_PAGE_SESSIONS = 1_000  # that are read at once
_SESSION_SQL = "where tenant = refold.tenant() and session = $1"
_TREE_SQL = (
    "where tenant = refold.tenant() and root = split_part($1, '/', 1) "
    "and (session = $1 or starts_with(session, $1 || '/'))"
)
_CHANGED_SQL = "extract(epoch from changed)::float8 as changed"
NEWEST_SQL = f"""
select session, {_CHANGED_SQL} from refold.journal
where tenant = refold.tenant() and lines > 0 and session = root
  and (journal.changed, session) < (to_timestamp($1), $2)
order by journal.changed desc, session desc limit {_PAGE_SESSIONS}
"""
_CHILDREN_SQL = f"""
select session from refold.journal {_TREE_SQL} and session ~ ('^' || $2 || '$') order by session
"""
# The text may also be in a call's arguments, so the kind of each line is checked again.
_DIRECTORY_LINES_SQL = f"""
select line from refold.line {_SESSION_SQL} and (seq = 1
  or position('"kind":"SessionResumed"'::bytea in line) > 0
  or position('"kind":"Imported"'::bytea in line) > 0) order by seq desc
"""
_LOCKED_SQL = """
select holder, refold.is_locked($1) as locked
from refold.journal where tenant = refold.tenant() and session = $1
"""
_SIZE_SQL = f"""
select count(*) as sessions,
  coalesce(sum((select sum(length(line)) from refold.line l
    where l.tenant = j.tenant and l.session = j.session)), 0)::bigint as lines
from refold.journal j {_TREE_SQL} and lines > 0
"""


def _no_progress(copied: int, remaining: int) -> None:
    return


class PostgreSQLSessions:
    """Implements `SessionIndex`. Paths of sessions are below `root`, though their lines are
    elsewhere.
    """

    def __init__(
        self, database: Database, root: Path, objects: TenantObjects | None = None
    ) -> None:
        self._database, self.root = database, root
        self.objects, self.blobs = objects, TenantBlobs(database, objects)

    def new_id(self, started_at: float) -> str:
        """Return an id for a session that begins at `started_at`, which no session has."""
        while True:
            name = random_id(started_at)
            if self.look_up(name) is None:
                return name

    def exists(self, session: str) -> bool:
        return self.look_up(session) is not None

    def look_up(self, session: str) -> StoredSession | None:
        query = f"select {_CHANGED_SQL} from refold.journal {_SESSION_SQL} and lines > 0"
        row = self._row(query, session)
        return StoredSession(session, row["changed"]) if row else None

    def sessions(self) -> Iterator[StoredSession]:
        """Yield all sessions without subagents, the last written first."""
        after = (inf, "")  # when the last session of the last page was changed, and its id
        while True:
            rows = self._database.call(lambda db, after=after: db.fetch(NEWEST_SQL, *after))
            for row in rows:
                yield StoredSession(row["session"], row["changed"])
                after = (row["changed"], row["session"])
            if len(rows) < _PAGE_SESSIONS:
                return

    def newest_of(self, directory: Path) -> StoredSession | None:
        """Return the newest session of a user in this directory, if possible one with
        messages.
        """
        real_directory = os.path.realpath(directory)
        without_messages = None
        wanted = CardFilter(str(directory), everything=True)
        for card in self.catalogue().newest_first(wanted):
            # The session may have been resumed in another directory since it was indexed.
            if os.path.realpath(self.directories(card.id).directory) != real_directory:
                continue
            if self._has_no_user(card.id):
                continue
            session = StoredSession(card.id, card.changed)
            if card.messages:
                return session
            without_messages = without_messages or session
        return without_messages

    def find(self, text: str, tell: Progress = _no_progress) -> StoredSession:
        return find_session.find(self, text, tell)

    def resolve(
        self, text: str, directory: Path, tell: Progress = _no_progress
    ) -> StoredSession:
        return find_session.resolve(self, text, directory, tell)

    def catalogue(
        self,
        tell: Progress = _no_progress,
        notice: Callable[[str], None] = lambda _: None,
    ) -> PostgreSQLCards:
        return PostgreSQLCards(self._database, tell)

    def entries(
        self,
        session: str,
        known_head: tuple[int, str] = (0, ""),
        *,
        may_be_missing: bool = False,
    ) -> tuple[list[Entry], str]:
        return entries_of(self._lines(session), known_head, may_be_missing=may_be_missing)

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        lines = self._lines(session).read(0)
        valid_count = codec.valid_head(lines).seq
        return EventHistory(LineEntries(lines[:valid_count]))

    def mentions(self, session: str, text: bytes) -> bool:
        query = f"select exists(select from refold.line {_SESSION_SQL} and position($2 in line) > 0)"
        return self._database.call(lambda db: db.fetchval(query, session, text))

    def directories(self, session: str) -> SessionDirectories:
        """Return the directories of the session; empty if the database cannot be read."""
        try:
            rows = self._database.call(lambda db: db.fetch(_DIRECTORY_LINES_SQL, session))
        except JournalError:
            return SessionDirectories()
        events = (codec.decode_unchecked(row["line"]) for row in rows)
        return directories_of(event for event in events if event is not None)

    def first_directory(self, session: str) -> str:
        started = self._first_event(session)
        return started.directory if isinstance(started, SessionStarted) else ""

    def tree(self, session: str) -> "Node":
        return tree_of(self._lines(session), session)

    def follow(self, session: str, address: str) -> TreeFollower:
        return TreeFollower(self._lines(session), address)

    def children(self, session: str) -> Sequence[str]:
        pattern = f"{session}/{CHILD_PATTERN}"
        rows = self._database.call(lambda db: db.fetch(_CHILDREN_SQL, session, pattern))
        return [row["session"].removeprefix(f"{session}/") for row in rows]

    def blob(self, session: str, name: str) -> bytes:
        return self.blobs.get(session, name)

    def refuse_links(self, session: str) -> None:
        """Do nothing: a session in a database has no file that could be a link."""

    def writer(self, session: str) -> SessionWriter | None:
        """Return the process that writes the session; None if no process does."""
        holder = self._holder(session)
        if holder is None:
            return None
        return SessionWriter(holder.pid, holder.host, writer_lock.describe_holder(holder))

    def is_locked_by(self, session: str, pid: int) -> bool:
        holder = self._holder(session)
        hostname = os.uname().nodename
        return holder is not None and (holder.pid, holder.host) == (pid, hostname)

    def path(self, session: str) -> Path:
        return JournalDirectory(self.root).path(session)

    def location(self, session: str) -> str:
        return f"{session} in {self._database.place}"

    def store(self, session: str) -> PostgreSQLStore:
        return PostgreSQLStore(self._database, session, self.blobs)

    def leftovers(self) -> Sequence[str]:
        return ()

    def remember_time(self, session: str) -> Callable[[], None]:
        """Return a function that restores the session's present time of its last change."""
        query = f"select changed from refold.journal {_SESSION_SQL}"
        before = self._database.call(lambda db: db.fetchval(query, session))

        async def restore(db: Connection) -> None:
            async with db.transaction():
                # In this order, because other writers write them in this order.
                for table in ("journal", "card"):
                    update = f"update refold.{table} set changed = $2 {_SESSION_SQL}"
                    await db.execute(update, session, before)

        return lambda: self._database.call(restore)

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        """Copy the session up to the event `up_to`, and return the new session.

        If `up_to` is None, copy the whole session.
        """
        with self._as_files(session) as files:
            fork = files.fork(session, up_to, now)
            self.take(files, fork.id)
        return fork

    @contextmanager
    def importing(self) -> Generator[JournalDirectory]:
        """Yield a directory for session files, and store its sessions when the block ends."""
        with tempfile.TemporaryDirectory(prefix="refold-import-") as above:
            files = _NewSessions(Path(above) / "sessions", self)
            yield files
            for session in list(files.sessions()):
                self.take(files, session.id)

    def check(self, session: str) -> "JournalCheck":
        """Check the lines and blobs of a session. The report names the database, not files."""
        with self._as_files(session) as files:
            report = files.check(session)
        directory = Path(self.location(session))
        damages = tuple(replace(damage, file=directory) for damage in report.damages)
        return replace(report, path=directory, damages=damages)

    def pack(self, session: str, *, children: bool = True) -> "PackedCopy":
        """Return the session as a tar, with its subagents if `children`."""
        with self._as_files(session) as files:
            packed = files.pack(session, children=children)
            copy = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115 - `PackedCopy` closes it
            for piece in packed.pieces():
                copy.write(piece)
        return PackedCopy(packed, copy)

    def size(self, session: str) -> SessionSize:
        row: Any = self._row(_SIZE_SQL, session)
        blob_count, blob_bytes = self.blobs.size(session)
        return SessionSize(
            sessions=row["sessions"],
            files=row["sessions"] + blob_count,  # a journal for each session
            bytes=row["lines"] + blob_bytes,
        )

    def delete(self, session: str) -> None:
        anyio.run(self._delete, session)

    def take(self, source: SessionIndex, session: str) -> int:
        """Copy a session from the index `source` into this index; return the number of its
        events.
        """
        return anyio.run(copy_session, source, self, session)

    async def _delete(self, session: str) -> None:
        """Delete a session and its subagents. Raises `Held` if a process writes one of them."""
        query = f"select session from refold.journal {_TREE_SQL}"
        rows = await self._database.run(lambda db: db.fetch(query, session))
        owner = object()
        async with AsyncExitStack() as locks:
            for row in rows:
                name = row["session"]
                if not await self._database.lock(name, owner):
                    holder = await to_thread.run_sync(self._holder, name)
                    raise held_error(name, holder or writer_lock.Writer())
                locks.push_async_callback(self._database.unlock, name, owner)
            # Objects first, so that an interrupted deletion can be done again.
            await to_thread.run_sync(self.blobs.delete_objects, session)
            await self._database.run(lambda db: _delete_rows(db, session))

    def _holder(self, session: str) -> writer_lock.Writer | None:
        """Return the process that holds the lock of the session; None if it is not locked."""
        row = self._row(_LOCKED_SQL, session)
        return parse_holder(row["holder"]) if row is not None and row["locked"] else None

    def _has_no_user(self, session: str) -> bool:
        """Whether no user takes part in the session.

        This is so if the session checks the claims of another session, or if it is a
        scheduled run that no user has resumed.
        """
        started = self._first_event(session)
        if not isinstance(started, SessionStarted):
            return False
        if started.schedule:
            return not self.mentions(session, b'"kind":"SessionResumed"')
        return bool(started.checks)

    def _first_event(self, session: str) -> Event | None:
        """Return the first event of a session; None if it has none that can be read."""
        query = f"select line from refold.line {_SESSION_SQL} and seq = 1"
        line = self._database.call(lambda db: db.fetchval(query, session))
        return codec.decode_unchecked(line) if line is not None else None

    def _lines(self, session: str) -> "_Lines":
        return _Lines(self, self._database, session)

    @contextmanager
    def _as_files(self, session: str) -> Generator[JournalDirectory]:
        """Copy the session and its subagents to temporary files, and yield an index of the
        files.
        """
        with tempfile.TemporaryDirectory(prefix="refold-session-") as above:
            files = JournalDirectory(Path(above) / "sessions")
            self._write_files(files, session)
            yield files

    def _write_files(self, files: JournalDirectory, session: str) -> None:
        """Write the session, its blobs and its subagents into the directory `files`."""
        directory = files.path(session)
        (directory / BLOBS_DIRECTORY).mkdir(parents=True)
        lines = self._lines(session).read(0)
        file = directory / log_file.FILE_NAME
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        for name in self.blobs.names(session):
            # A check of the session compares content and name.
            content = self.blobs.read_unchecked(session, name)
            (directory / BLOBS_DIRECTORY / name).write_bytes(content)
        for child in self.children(session):
            self._write_files(files, f"{session}/{child}")

    def _row(self, query: str, *values: object) -> Row | None:
        return self._database.call(lambda db: db.fetchrow(query, *values))


class _NewSessions(JournalDirectory):
    """Creates sessions as files, with ids that no session in `sessions` has."""

    def __init__(self, root: Path, sessions: PostgreSQLSessions) -> None:
        super().__init__(root)
        self._sessions = sessions

    def new_id(self, started_at: float) -> str:
        return self._sessions.new_id(started_at)

    def exists(self, session: str) -> bool:
        return super().exists(session) or self._sessions.exists(session)


class PackedCopy:
    """Implements `PackedSession` with a copy of the tar in an open file."""

    def __init__(self, packer: "SessionPacker", copy: IO[bytes]) -> None:
        self.damages = packer.damages
        self.events, self.sessions = packer.events, packer.sessions
        self._copy = copy
        weakref.finalize(self, copy.close)

    def pieces(self) -> Iterator[bytes]:
        self._copy.seek(0)
        while piece := self._copy.read(_PIECE_BYTES):
            yield piece


class _Lines:
    """The lines of one session, as the source of a tree of sessions."""

    def __init__(
        self, sessions: PostgreSQLSessions, database: Database, session: str
    ) -> None:
        self._sessions, self._database, self._session = sessions, database, session
        self.name = sessions.location(session)

    def read(self, after: int) -> Sequence[bytes]:
        return self._database.call(lambda db: read_lines(db, self._session, after))

    def below(self, child: str) -> "_Lines":
        return _Lines(self._sessions, self._database, f"{self._session}/{child}")

    def children(self) -> Sequence[str]:
        return self._sessions.children(self._session)

    def is_written(self) -> bool:
        return self._sessions.writer(self._session) is not None


async def _delete_rows(db: Connection, session: str) -> None:
    """Delete the rows of a session and its subagents in all tables, in one transaction."""
    async with db.transaction():
        orders = "delete from refold.placed_order where tenant = refold.tenant() and session = $1"
        await db.execute(orders, session)
        schedule = await db.fetchval(
            f"select schedule from refold.card {_SESSION_SQL}", session
        )
        await db.execute(f"delete from refold.journal {_TREE_SQL}", session)
        below = "(session = $1 or starts_with(session, $1 || '/'))"
        query = f"delete from refold.blob where tenant = refold.tenant() and {below}"
        await db.execute(query, session)
        await db.execute("select refold.show_newest_run($1)", schedule)
        # Processes that wait for an order of the session must notice the deletion.
        await db.execute("select pg_notify(refold.channel('settled'), '')")
