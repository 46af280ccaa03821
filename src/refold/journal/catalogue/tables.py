"""The file of the catalogue: SQLite by apsw, and what stands in its tables.

Everything in it can be made again from the journals. So a file that is broken, or of
another version, is thrown away; and where none can be written, a private one does that
SQLite deletes by itself. What is written into it is the business of `indexing`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.journal.catalogue.card import Card
from refold.journal.catalogue.hit import ENDS, FOUND, Hit
from refold.journal.catalogue.words import shown
from refold.journal.seen import Stamp

VERSION = 1
PRIVATE = Path()  # no file that anybody else can see
_PATIENCE = 5_000  # milliseconds that another writer is waited for
_SNIPPET = 20  # words
_BITS = 32  # of an event's number in the key of its words
_SCHEMA = f"""
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parent TEXT NOT NULL,
        children INTEGER NOT NULL, card BLOB NOT NULL,
        size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
        upto INTEGER NOT NULL, last INTEGER NOT NULL, h TEXT NOT NULL
    );
    CREATE VIRTUAL TABLE words USING fts5(
        text, who UNINDEXED, tokenize = 'unicode61 remove_diacritics 2'
    );
    PRAGMA user_version = {VERSION};
"""
_DROP = "DROP TABLE IF EXISTS words; DROP TABLE IF EXISTS sessions;"
_CARD = msgspec.json.Decoder(Card)


Value: TypeAlias = str | bytes | int | float | None


class Sql(Protocol):
    """What is used of apsw's connections, whose own types name some that Python 3.11 has not."""

    in_transaction: bool

    def execute(
        self, statements: str, bindings: Sequence[Value] = ()
    ) -> Iterator[tuple[Any, ...]]: ...
    def executemany(
        self, statements: str, bindings: Iterable[Sequence[Value]]
    ) -> Iterator[tuple[Any, ...]]: ...
    def last_insert_rowid(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def close(self) -> None: ...


class Read(Struct, frozen=True):
    """How far a journal was read: `upto` bytes, the last line of which has `last`."""

    stamp: Stamp = Stamp()
    upto: int = 0
    last: int = 0
    h: str = ""


class Row(Struct, frozen=True):
    key: int
    card: Card
    read: Read


class Tables:
    """One connection, for one thread at a time. Raises `apsw.Error`."""

    def __init__(self, connection: Sql) -> None:
        self._sql = connection

    def close(self) -> None:
        self._sql.close()

    def wait_at_most(self, seconds: float) -> None:
        """Be less patient with other writers than usual."""
        self._sql.set_busy_timeout(int(min(seconds * 1_000, _PATIENCE)))

    def begin(self) -> None:
        """From here on nobody else writes. What is written is there with `commit`."""
        self._sql.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._sql.execute("COMMIT")

    def roll_back(self) -> None:
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

    def stamps(self) -> dict[str, Stamp]:
        found = self._sql.execute("SELECT id, size, mtime, inode FROM sessions")
        return {id_: Stamp(size, mtime, inode) for id_, size, mtime, inode in found}

    def row(self, id_: str) -> Row | None:
        for key, card, size, mtime, inode, upto, last, h in self._sql.execute(
            "SELECT key, card, size, mtime, inode, upto, last, h FROM sessions "
            "WHERE id = ?", (id_,),
        ):  # fmt: skip
            read = Read(Stamp(size, mtime, inode), upto, last, h)
            return Row(key, _CARD.decode(card), read)
        return None

    def cards(self, *, children: bool = False) -> list[Card]:
        """In no order: SQLite would carry all of each about while it sorts."""
        which = "" if children else " WHERE parent = ''"
        found = self._sql.execute(f"SELECT card FROM sessions{which}")
        return [_CARD.decode(card) for (card,) in found]

    def with_children(self) -> list[Card]:
        found = self._sql.execute("SELECT card FROM sessions WHERE children > 0")
        return [_CARD.decode(card) for (card,) in found]

    def add(self, card: Card) -> int:
        """Make a row for a session that has none. Gives its key."""
        self._sql.execute(
            "INSERT INTO sessions (id, parent, children, card, size, mtime, "
            "inode, upto, last, h) VALUES (?, ?, 0, ?, -1, 0, 0, 0, 0, '')",
            (card.id, card.parent, msgspec.json.encode(card)),
        )
        return self._sql.last_insert_rowid()

    def put(self, key: int, card: Card, read: Read) -> None:
        """Write down what is known of a session by now."""
        stamp = read.stamp
        self._sql.execute(
            "UPDATE sessions SET children = ?, card = ?, size = ?, "
            "mtime = ?, inode = ?, upto = ?, last = ?, h = ? WHERE key = ?",
            (len(card.children), msgspec.json.encode(card), stamp.size,
             stamp.mtime, stamp.inode, read.upto, read.last, read.h, key),
        )  # fmt: skip

    def put_words(self, key: int, words: Sequence[tuple[int, str, str]]) -> None:
        """(seq, who, text) of messages of this session that are new."""
        self._sql.executemany(
            "INSERT INTO words (rowid, text, who) VALUES (?, ?, ?)",
            ((key << _BITS | seq, text, who) for seq, who, text in words),
        )

    def forget(self, key: int) -> None:
        self._sql.execute(
            "DELETE FROM words WHERE rowid BETWEEN ? AND ?",
            (key << _BITS, (key + 1 << _BITS) - 1),
        )
        self._sql.execute("DELETE FROM sessions WHERE key = ?", (key,))

    def ids_below(self, id_: str) -> list[str]:
        """The session, its children, and theirs."""
        found = self._sql.execute(
            "SELECT id FROM sessions WHERE id = ? OR (id > ? AND id < ?)",
            (id_, f"{id_}/", f"{id_}0"),  # "0" comes after "/"
        )
        return [below for (below,) in found]

    def search(self, expression: str) -> Iterator[Hit]:
        """The best first."""
        for card, rowid, who, snippet in self._sql.execute(
            "SELECT card, words.rowid, who, snippet(words, 0, ?, ?, '…', ?) FROM words "
            f"CROSS JOIN sessions ON sessions.key = words.rowid >> {_BITS} "
            "WHERE words MATCH ? ORDER BY rank",
            (FOUND, ENDS, _SNIPPET, expression),
        ):
            seq = rowid & (1 << _BITS) - 1
            yield Hit(_CARD.decode(card), seq, who, shown(snippet))

    def count(self) -> tuple[int, int]:
        """Sessions, children among them, and messages."""
        [(sessions,)] = self._sql.execute("SELECT count(*) FROM sessions")
        [(messages,)] = self._sql.execute("SELECT count(*) FROM words_docsize")
        return sessions, messages


def opened(path: Path) -> Tables:
    """The tables in this file, made if need be. Raises `apsw.Error` or `OSError`."""
    import apsw  # only who lists or searches needs it

    if path == PRIVATE:
        connection = cast("Sql", apsw.Connection(""))
    else:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        made = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection = cast("Sql", made)
    try:
        connection.set_busy_timeout(_PATIENCE)
        # Lost in a power cut is at most what the journals tell again.
        connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
        if _version(connection) != VERSION:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) != VERSION:  # else somebody was faster
                connection.execute(_DROP + _SCHEMA)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return Tables(connection)


def throw_away(path: Path, inode: int) -> None:
    """Delete the file, if it still is that one: another process may have made it anew."""
    with suppress(OSError):
        if path.stat().st_ino == inode:
            for end in ("-wal", "-shm", ""):
                Path(f"{path}{end}").unlink(missing_ok=True)


def _version(connection: Sql) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)
