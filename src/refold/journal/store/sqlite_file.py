"""Opens SQLite files whose data can be computed again. A missing file is created, and a broken
one is deleted.

SQLite is part of apsw, which is slow to import, so it is imported when a file is opened.
The caller defines the tables: `catalogue.database` has those of the sessions.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from errno import EEXIST
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from refold.safe_open import check_no_links
from refold.safe_open import open_checked as opened_file

PRIVATE_FILE = Path()  # a temporary file that only this connection can see
_TIMEOUT_SECONDS = 5.0  # of waiting for another writer
_POLL_SECONDS = 0.001
_FILE_SUFFIXES = ("-wal", "-shm", "")  # of the files that SQLite uses

Value: TypeAlias = str | bytes | int | float | None


class Sql(Protocol):
    """The methods of `apsw.Connection` that are used: its own types need more than
    Python 3.11.
    """

    in_transaction: bool

    def execute(
        self, statements: str, bindings: Sequence[Value] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Run the statements, and return the rows."""
        ...

    def executemany(
        self, statements: str, bindings: Iterable[Sequence[Value]]
    ) -> Iterator[tuple[Any, ...]]:
        """Run the statements once for each of the bindings."""
        ...

    def last_insert_rowid(self) -> int:
        """Return the key of the row that was inserted last."""
        ...

    def set_busy_handler(self, keep_waiting: Callable[[int], bool]) -> None:
        """Set the function that gets the number of earlier attempts and says whether to try
        again.
        """
        ...

    def close(self) -> None: ...
    def backup(self, into: str, source: "Sql", of: str) -> "BackupCopy":
        """Return a copy of a database, which is made by `BackupCopy.step`.

        The database `of` in `source` is copied to the database `into` of this connection.
        """
        ...


class BackupCopy(Protocol):
    def step(self) -> bool:
        """Copy all pages. Return whether everything is copied."""
        ...

    def close(self, force: bool) -> None:
        """End the copy. With `force`, raise no error."""
        ...


def open_database(path: Path) -> Sql:
    """Open the file, and create it if needed. Raises `apsw.Error` or `OSError`."""
    import apsw

    if path == PRIVATE_FILE:
        connection = cast("Sql", apsw.Connection(""))
    else:
        _create_file(path)
        native = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection = cast("Sql", native)
    try:
        wait_for_writers(connection, _TIMEOUT_SECONDS)
        # A power failure may lose recent commits; their data is then computed again.
        connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_schema(connection: Sql, version: int, statements: str) -> None:
    """Run `statements`, which set `user_version`, unless the file has this version already."""
    if _version(connection) != version:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) != version:  # otherwise another process was faster
            connection.execute(statements)
        connection.execute("COMMIT")


class ForeignTables(Exception):
    """Raised if the file has other tables than those of the caller."""


def open_cache(path: Path, version: int, statements: str, tables: Collection[str]) -> Sql:
    """Open a file with these tables, which `statements` create.

    A broken file is replaced once.

    A trigger or a view in a file from elsewhere could do anything, so such a file counts as
    broken. Raises `apsw.Error`, `OSError` or `ForeignTables`.
    """
    import apsw

    broken = (
        apsw.CorruptError,
        apsw.NotADBError,
        apsw.FormatError,
        apsw.SQLError,
        ForeignTables,
    )
    inode = _inode(path)
    try:
        return _open_checked(path, version, statements, tables)
    except broken:
        if path == PRIVATE_FILE:
            raise
        delete_file(path, inode)
    return _open_checked(path, version, statements, tables)


def _open_checked(
    path: Path, version: int, statements: str, tables: Collection[str]
) -> Sql:
    """Open the database. Raises `ForeignTables` if it has others than `tables`."""
    sql = open_database(path)
    try:
        sql.execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")
        prepare_schema(sql, version, statements)
        rows = sql.execute("SELECT type, name FROM sqlite_schema")
        names = {(kind, name) for kind, name in rows if not name.startswith("sqlite_")}
        if names != {("table", name) for name in tables}:
            raise ForeignTables("it has other tables")
    except BaseException:
        sql.close()
        raise
    return sql


def _inode(path: Path) -> int:
    """Return the inode of a file; 0 if it cannot be read."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def wait_for_writers(connection: Sql, seconds: float) -> None:
    """Wait at most `seconds` for other writers whenever the file is locked."""
    connection.set_busy_handler(_polling_busy_handler(min(seconds, _TIMEOUT_SECONDS)))


def explain(error: Exception) -> str:
    """Return why the file cannot be used, as a clause."""
    import apsw

    if isinstance(error, apsw.FullError):  # its own message can be "not an error"
        return "the disk is full"
    reason = error.strerror if isinstance(error, OSError) else ""
    return reason or str(error)


def _create_file(path: Path) -> None:
    """Create the file if it does not exist, readable by its owner only.

    An existing file is not opened, because closing it would release the locks that SQLite
    holds on it in other threads of this process.
    """
    check_no_links(*(Path(f"{path}{end}") for end in _FILE_SUFFIXES))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        os.close(opened_file(path, flags))
    except FileExistsError as error:
        if not path.is_file():
            raise OSError(EEXIST, "no file stands in its place") from error


def _polling_busy_handler(seconds: float) -> Callable[[int], bool]:
    """Return a busy handler that polls often.
    The handler of SQLite itself misses the short pauses of an indexer.
    """
    end_of_wait = 0.0

    def keep_waiting(attempts: int) -> bool:
        """Wait a moment, and return whether to retry; False once `seconds` are over."""
        nonlocal end_of_wait
        now = time.monotonic()
        if attempts == 0:  # a new wait begins
            end_of_wait = now + seconds
        if now >= end_of_wait:
            return False
        time.sleep(_POLL_SECONDS)
        return True

    return keep_waiting


def delete_file(path: Path, inode: int) -> None:
    """Delete the file if it still has this inode: another process may have replaced it."""
    with suppress(OSError):
        if path.stat().st_ino == inode:
            for end in _FILE_SUFFIXES:
                Path(f"{path}{end}").unlink(missing_ok=True)


def _version(connection: Sql) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)
