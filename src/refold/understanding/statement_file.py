"""The file with the statements about a repository: SQLite, outside the repository.

It is made from paid answers, which `rlm.memo` stores, so a lost file can be restored without a
model call. A killed process loses only uncommitted statements. The paths in it are never
opened.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.journal.store.sqlite_file import ForeignTables, explain, open_cache
from refold.place.private_files import make_directories
from refold.understanding.statements import Statement

_SCHEMA_VERSION = 1
_SCHEMA_SQL = f"""
DROP TABLE IF EXISTS pieces; DROP TABLE IF EXISTS modules; DROP TABLE IF EXISTS about;
CREATE TABLE pieces (path TEXT NOT NULL, content TEXT NOT NULL, notes BLOB NOT NULL,
 PRIMARY KEY (path, content));
CREATE TABLE modules (path TEXT PRIMARY KEY, notes BLOB NOT NULL);
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
PRAGMA user_version = {_SCHEMA_VERSION};
"""
_TABLE_NAMES = ("pieces", "modules", "about")
T = TypeVar("T")


class PieceNotes(Struct, frozen=True):
    """The statements about a piece of a file. `line` is where the piece began when it was read.

    `content` is the hash of the piece.
    """

    path: str
    content: str
    question: str  # the key of the question
    line: int
    statements: tuple[Statement, ...] = ()
    dropped: Mapping[str, int] = {}
    failed: str = ""  # the reason why there is no answer


class StatementSource(Struct, frozen=True):
    """A statement about a piece, as the source of another statement. `quote` identifies it."""

    path: str
    content: str
    quote: str


class ModuleStatement(Struct, frozen=True):
    text: str
    sources: tuple[StatementSource, ...]


class ModuleNotes(Struct, frozen=True):
    """The statements about a directory.

    `content` is the hash of the statements about its parts, from which they follow.
    """

    path: str
    content: str
    question: str
    statements: tuple[ModuleStatement, ...] = ()
    dropped: Mapping[str, int] = {}
    failed: str = ""


class StatementFile:
    """A connection to the file, for one thread at a time. Raises `BadInput` if it cannot be
    used.
    """

    def __init__(self, path: Path) -> None:
        import apsw

        self.path, self._broken = path, (apsw.Error, OSError, ForeignTables)
        try:
            make_directories(path.parent)
            self._sql = open_cache(path, _SCHEMA_VERSION, _SCHEMA_SQL, _TABLE_NAMES)
        except self._broken as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        self._sql.close()

    def pieces(self) -> Sequence[PieceNotes]:
        return self._read("SELECT notes FROM pieces ORDER BY path, rowid", PieceNotes)

    def modules(self) -> Sequence[ModuleNotes]:
        return self._read("SELECT notes FROM modules ORDER BY path", ModuleNotes)

    def put_pieces(self, notes: Iterable[PieceNotes]) -> None:
        encode = msgspec.msgpack.encode
        rows = [(item.path, item.content, encode(item)) for item in notes]
        self._write("INSERT OR REPLACE INTO pieces VALUES (?, ?, ?)", rows)

    def put_modules(self, notes: Iterable[ModuleNotes]) -> None:
        rows = [(item.path, msgspec.msgpack.encode(item)) for item in notes]
        self._write("INSERT OR REPLACE INTO modules VALUES (?, ?)", rows)

    def forget_pieces(self, notes: Iterable[PieceNotes]) -> None:
        rows = [(item.path, item.content) for item in notes]
        self._write("DELETE FROM pieces WHERE path = ? AND content = ?", rows)

    def forget_modules(self, paths: Iterable[str]) -> None:
        self._write("DELETE FROM modules WHERE path = ?", [(path,) for path in paths])

    def metadata(self, name: str) -> str:
        """Return the value that `put_metadata` stored under this name, or ""."""
        rows = self._sql.execute("SELECT value FROM about WHERE name = ?", (name,))
        return next((str(value) for (value,) in rows), "")

    def put_metadata(self, name: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO about VALUES (?, ?)", [(name, value)])

    def _read(self, statement: str, kind: type[T]) -> Sequence[T]:
        decoder, notes = msgspec.msgpack.Decoder(kind), list[T]()
        for (data,) in self._sql.execute(statement):
            try:
                notes.append(decoder.decode(data))
            except (msgspec.MsgspecError, TypeError):
                continue  # another program wrote it, so its content must be read again
        return notes

    def _write(self, statement: str, rows: Sequence[tuple[str | bytes, ...]]) -> None:
        """Execute a statement for all rows or, if it fails, for none."""
        if not rows:
            return
        try:
            self._sql.execute("BEGIN IMMEDIATE")
            self._sql.executemany(statement, rows)
            self._sql.execute("COMMIT")
        except self._broken as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> BadInput:
        return BadInput(f"the statements in {self.path} cannot be used: {explain(error)}")
