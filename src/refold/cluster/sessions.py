"""All sessions in a PostgreSQL database: the adapter of `journal.session_index`.

What the rest of refold does with files of one session (a fork, a check, an export) is done with a
copy of that session in a temporary directory.
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
from refold.journal.home import JournalDirectory, directories_of, random_id
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
_PAGE_SESSIONS = 1_000  # read at once
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
# The text may also be in a call's arguments: who reads the line looks again.
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
    """Implements `SessionIndex`. `root` is where files of sessions would be on this machine."""

    def __init__(
        self, database: Database, root: Path, objects: TenantObjects | None = None
    ) -> None:
        self._database, self.root = database, root
        self.objects, self.blobs = objects, TenantBlobs(database, objects)

    def new_id(self, started_at: float) -> str:
        while self.look_up(name := random_id(started_at)) is not None:
            pass
        return name

    def exists(self, session: str) -> bool:
        return self.look_up(session) is not None

    def look_up(self, session: str) -> StoredSession | None:
        query = f"select {_CHANGED_SQL} from refold.journal {_SESSION_SQL} and lines > 0"
        row = self._row(query, session)
        return StoredSession(session, row["changed"]) if row else None

    def sessions(self) -> Iterator[StoredSession]:
        changed, session, has_more = inf, "", True
        while has_more:
            after = changed, session
            rows = self._database.call(lambda db, after=after: db.fetch(NEWEST_SQL, *after))
            for row in rows:
                session, changed = row["session"], row["changed"]
                yield StoredSession(session, changed)
            has_more = len(rows) == _PAGE_SESSIONS

    def newest_of(self, directory: Path) -> StoredSession | None:
        real, silent = os.path.realpath(directory), None
        wanted = CardFilter(str(directory), everything=True)
        for card in self.catalogue().newest_first(wanted):
            if os.path.realpath(self.directories(card.id).directory) != real:
                continue
            if self._has_no_user(card.id):
                continue
            session = StoredSession(card.id, card.changed)
            if card.messages:
                return session
            silent = silent or session
        return silent

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
        self, session: str, known_head: tuple[int, str] = (0, ""), *, begins: bool = False
    ) -> tuple[list[Entry], str]:
        return entries_of(self._lines(session), known_head, begins=begins)

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        lines = self._lines(session).read(0)
        return EventHistory(LineEntries(lines[: codec.valid_head(lines).seq]))

    def mentions(self, session: str, text: bytes) -> bool:
        query = f"select exists(select from refold.line {_SESSION_SQL} and position($2 in line) > 0)"
        return self._database.call(lambda db: db.fetchval(query, session, text))

    def directories(self, session: str) -> SessionDirectories:
        try:
            rows = self._database.call(lambda db: db.fetch(_DIRECTORY_LINES_SQL, session))
        except JournalError:
            return SessionDirectories()
        news = (codec.decode_unchecked(row["line"]) for row in rows)
        return directories_of(event for event in news if event is not None)

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
        return [row["session"].rpartition("/")[2] for row in rows]

    def blob(self, session: str, name: str) -> bytes:
        return self.blobs.get(session, name)

    def refuse_links(self, session: str) -> None:
        """Do nothing: a session in a database has no file that could be a link."""

    def writer(self, session: str) -> SessionWriter | None:
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
        query = f"select changed from refold.journal {_SESSION_SQL}"
        before = self._database.call(lambda db: db.fetchval(query, session))

        async def restore(db: Connection) -> None:
            async with db.transaction():
                for table in (
                    "journal",
                    "card",
                ):  # in this order, as they are written elsewhere
                    update = f"update refold.{table} set changed = $2 {_SESSION_SQL}"
                    await db.execute(update, session, before)

        return lambda: self._database.call(restore)

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        with self._as_files(session) as files:
            fork = files.fork(session, up_to, now)
            self.take(files, fork.id)
        return fork

    @contextmanager
    def importing(self) -> Generator[JournalDirectory]:
        with tempfile.TemporaryDirectory(prefix="refold-import-") as above:
            files = _NewSessions(Path(above) / "sessions", self)
            yield files
            for session in list(files.sessions()):
                self.take(files, session.id)

    def check(self, session: str) -> "JournalCheck":
        with self._as_files(session) as files:
            report = files.check(session)
        directory = Path(self.location(session))
        damages = tuple(replace(damage, file=directory) for damage in report.damages)
        return replace(report, path=directory, damages=damages)

    def pack(self, session: str, *, children: bool = True) -> "PackedCopy":
        with self._as_files(session) as files:
            packed = files.pack(session, children=children)
            copy = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115 - `PackedCopy` closes it
            for piece in packed.pieces():
                copy.write(piece)
        return PackedCopy(packed, copy)

    def size(self, session: str) -> SessionSize:
        row: Any = self._row(_SIZE_SQL, session)
        blobs, size = self.blobs.size(session)
        return SessionSize(row["sessions"], row["sessions"] + blobs, row["lines"] + size)

    def delete(self, session: str) -> None:
        anyio.run(self._delete, session)

    def take(self, source: SessionIndex, session: str) -> int:
        """Copy a session from another index; return the number of its events."""
        return anyio.run(copy_session, source, self, session)

    async def _delete(self, session: str) -> None:
        query = f"select session from refold.journal {_TREE_SQL}"
        rows = await self._database.run(lambda db: db.fetch(query, session))
        owner = object()
        async with AsyncExitStack() as locks:
            for name in (row["session"] for row in rows):
                if not await self._database.lock(name, owner):
                    holder = await to_thread.run_sync(self._holder, name)
                    raise held_error(name, holder or writer_lock.Writer())
                locks.push_async_callback(self._database.unlock, name, owner)
            # First, so that a deletion that was interrupted can be done again.
            await to_thread.run_sync(self.blobs.delete_objects, session)
            await self._database.run(lambda db: _delete_rows(db, session))

    def _holder(self, session: str) -> writer_lock.Writer | None:
        """Return the process that holds the lock of the session."""
        row = self._row(_LOCKED_SQL, session)
        return parse_holder(row["holder"]) if row is not None and row["locked"] else None

    def _has_no_user(self, session: str) -> bool:
        """Return whether no user began or resumed it: it checks claims, or is a scheduled run."""
        started = self._first_event(session)
        if not isinstance(started, SessionStarted) or not started.schedule:
            return isinstance(started, SessionStarted) and bool(started.checks)
        return not self.mentions(session, b'"kind":"SessionResumed"')

    def _first_event(self, session: str) -> Event | None:
        query = f"select line from refold.line {_SESSION_SQL} and seq = 1"
        line = self._database.call(lambda db: db.fetchval(query, session))
        return codec.decode_unchecked(line) if line is not None else None

    def _lines(self, session: str) -> "_Lines":
        return _Lines(self, self._database, session)

    @contextmanager
    def _as_files(self, session: str) -> Generator[JournalDirectory]:
        """Copy the session and its subagents to files, unchanged."""
        with tempfile.TemporaryDirectory(prefix="refold-session-") as above:
            files = JournalDirectory(Path(above) / "sessions")
            self._write_files(files, session)
            yield files

    def _write_files(self, files: JournalDirectory, session: str) -> None:
        directory = files.path(session)
        (directory / BLOBS_DIRECTORY).mkdir(parents=True)
        lines = self._lines(session).read(0)
        file = directory / log_file.FILE_NAME
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        for name in self.blobs.names(session):
            content = self.blobs.read_unchecked(session, name)  # a check looks at it
            (directory / BLOBS_DIRECTORY / name).write_bytes(content)
        for child in self.children(session):
            self._write_files(files, f"{session}/{child}")

    def _row(self, query: str, *values: object) -> Row | None:
        return self._database.call(lambda db: db.fetchrow(query, *values))


class _NewSessions(JournalDirectory):
    """Sessions that are created as files, with ids that are free in `sessions`."""

    def __init__(self, root: Path, sessions: PostgreSQLSessions) -> None:
        super().__init__(root)
        self._sessions = sessions

    def new_id(self, started_at: float) -> str:
        return self._sessions.new_id(started_at)

    def exists(self, session: str) -> bool:
        return super().exists(session) or self._sessions.exists(session)


class PackedCopy:
    """Implements `PackedSession` with a copy of the tar."""

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
    """The lines of one session: a source of trees."""

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
