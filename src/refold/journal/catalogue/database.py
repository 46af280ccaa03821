"""The file of the catalogue: SQLite through apsw, and its tables.

Everything can be rebuilt from the journals, so a file that is broken or of another version
is deleted. If no file can be written, a temporary one is used, which SQLite deletes by
itself. `indexer` decides what is written.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.journal.catalogue.search_text import from_index
from refold.journal.catalogue.session_card import MATCH_END, MATCH_START, Card, Hit
from refold.journal.store.session_files import FileStamp
from refold.journal.store.sqlite_file import (
    Sql,
    open_database,
    prepare_schema,
    wait_for_writers,
)

SCHEMA_VERSION = 5
_SNIPPET_WORDS = 20
_MAX_FORGOTTEN_MESSAGES = 1_000  # deleted at once
_SEQ_BITS = 32  # number of bits, in the row id of a message's words, for the event number
_SEQ_MASK = (1 << _SEQ_BITS) - 1
_SCHEMA_SQL = f"""
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parent TEXT NOT NULL,
        children INTEGER NOT NULL, card BLOB NOT NULL,
        size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
        upto INTEGER NOT NULL, last INTEGER NOT NULL, h TEXT NOT NULL
    );
    CREATE VIRTUAL TABLE words USING fts5(
        text, who UNINDEXED, tokenize = 'unicode61 remove_diacritics 2'
    );
    PRAGMA user_version = {SCHEMA_VERSION};
"""
_DROP_SQL = "DROP TABLE IF EXISTS words; DROP TABLE IF EXISTS sessions;"
_CARD_DECODER = msgspec.json.Decoder(Card)
_MAX_KNOWN_CARDS = 4096


class ReadPosition(Struct, frozen=True):
    """How far a journal was read: `upto` bytes. `last` identifies the last line read."""

    stamp: FileStamp = FileStamp()
    upto: int = 0
    last: int = 0
    h: str = ""


class CatalogueRow(Struct, frozen=True):
    key: int
    card: Card
    read: ReadPosition


class Tables:
    """The tables of a catalogue, read and written through one connection.

    Only one thread may use it at a time. Every method may raise `apsw.Error`.
    """

    def __init__(self, connection: Sql) -> None:
        self._sql = connection

    def close(self) -> None:
        self._sql.close()

    def wait_at_most(self, seconds: float) -> None:
        """Wait at most `seconds` for other writers whenever the file is locked."""
        wait_for_writers(self._sql, seconds)

    def begin(self) -> None:
        """Take the write lock. What is written becomes visible with `commit`."""
        self._sql.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._sql.execute("COMMIT")

    def roll_back(self) -> None:
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

    def replace_content(self, source: "Tables") -> None:
        """Replace the content by that of `source`, atomically for all readers.

        The file itself is not replaced, because other processes have it open.
        """
        copying = self._sql.backup("main", source._sql, "main")
        try:
            copying.step()
        finally:
            copying.close(True)  # forced, because `step` has raised the error already

    def stamps(self) -> dict[str, FileStamp]:
        rows = self._sql.execute("SELECT id, size, mtime, inode FROM sessions")
        return {id_: FileStamp(size, mtime, inode) for id_, size, mtime, inode in rows}

    def row(self, id_: str) -> CatalogueRow | None:
        """Return what is stored of the session with this id; None if it is not indexed."""
        for key, card, size, mtime, inode, read_bytes, last, h in self._sql.execute(
            "SELECT key, card, size, mtime, inode, upto, last, h FROM sessions "
            "WHERE id = ?", (id_,),
        ):  # fmt: skip
            read = ReadPosition(FileStamp(size, mtime, inode), read_bytes, last, h)
            return CatalogueRow(key, _to_card(card), read)
        return None

    def cards(self, *, children: bool = False) -> list[Card]:
        """Return the cards of all sessions, with `children` also those of subagents.

        They are unsorted, because SQLite would copy whole rows while sorting.
        """
        return self._cards("" if children else " WHERE parent = ''")

    def whole_cards(self) -> list[Card]:
        """Return the cards of the sessions whose journals were read to their end. Subagents are
        left out.
        """
        return self._cards(" WHERE parent = '' AND size >= 0")

    def with_children(self) -> list[Card]:
        """Return the cards of the sessions that have subagents."""
        return self._cards(" WHERE children > 0")

    def cards_below(self, id_: str) -> list[Card]:
        """Return the cards of the session and all its subagents."""
        return [row.card for name in self.ids_below(id_) if (row := self.row(name))]

    def add(self, card: Card) -> int:
        """Insert a row for the session of `card`, and return the key of the row."""
        self._sql.execute(
            "INSERT INTO sessions (id, parent, children, card, size, mtime, "
            "inode, upto, last, h) VALUES (?, ?, 0, ?, -1, 0, 0, 0, 0, '')",
            (card.id, card.parent, msgspec.json.encode(card)),
        )
        return self._sql.last_insert_rowid()

    def update_row(self, key: int, card: Card, read: ReadPosition) -> None:
        """Replace the card and the read position in the row with this key."""
        stamp = read.stamp
        self._sql.execute(
            "UPDATE sessions SET children = ?, card = ?, size = ?, "
            "mtime = ?, inode = ?, upto = ?, last = ?, h = ? WHERE key = ?",
            (len(card.children), msgspec.json.encode(card), stamp.size,
             stamp.mtime, stamp.inode, read.upto, read.last, read.h, key),
        )  # fmt: skip

    def store_words(self, key: int, words: Sequence[tuple[int, str, str]]) -> None:
        """Store the texts of new messages, as (seq, author, text), for the session with this
        key.
        """
        first_rowid = key << _SEQ_BITS
        self._sql.executemany(
            "INSERT INTO words (rowid, text, who) VALUES (?, ?, ?)",
            ((first_rowid | seq, text, speaker) for seq, speaker, text in words),
        )

    def delete_part(self, row: CatalogueRow) -> bool:
        """Delete a part of a session from the tables. Return True if another part is left."""
        first_id = row.key << _SEQ_BITS
        last_id = ((row.key + 1) << _SEQ_BITS) - 1
        ids = self._sql.execute(
            "SELECT id FROM words_docsize WHERE id BETWEEN ? AND ? ORDER BY id "
            "LIMIT 1 OFFSET ?", (first_id, last_id, _MAX_FORGOTTEN_MESSAGES),
        )  # fmt: skip
        next_id = next((id_ for (id_,) in ids), None)  # the first one that is left
        end_id = last_id if next_id is None else next_id - 1
        self._sql.execute(
            "DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first_id, end_id)
        )
        if next_id is None:
            self._sql.execute("DELETE FROM sessions WHERE key = ?", (row.key,))
        else:  # so that the journal is read from its start again
            self._sql.execute(
                "UPDATE sessions SET size = -1, last = 0 WHERE key = ?", (row.key,)
            )
        return next_id is not None

    def ids_below(self, id_: str) -> list[str]:
        """Return the ids of the session and all its subagents."""
        rows = self._sql.execute(
            "SELECT id FROM sessions WHERE id = ? OR (id > ? AND id < ?)",
            (id_, f"{id_}/", f"{id_}0"),  # "0" comes after "/"
        )
        return [row_id for (row_id,) in rows]

    def search(self, expression: str) -> Iterator[Hit]:
        """Yield the hits for an FTS5 expression, the best first."""
        for card, rowid, speaker, snippet in self._sql.execute(
            "SELECT card, words.rowid, who, snippet(words, 0, ?, ?, '…', ?) FROM words "
            f"CROSS JOIN sessions ON sessions.key = words.rowid >> {_SEQ_BITS} "
            "WHERE words MATCH ? ORDER BY rank",
            (MATCH_START, MATCH_END, _SNIPPET_WORDS, expression),
        ):
            seq = rowid & _SEQ_MASK  # the upper bits are the key of the session
            yield Hit(_to_card(card), seq, speaker, from_index(snippet))

    def _cards(self, condition: str) -> list[Card]:
        rows = self._sql.execute(f"SELECT card FROM sessions{condition}")
        return [_to_card(card) for (card,) in rows]

    def count(self) -> tuple[int, int]:
        """Return the number of sessions, including subagents, and the number of indexed
        messages.
        """
        [(sessions,)] = self._sql.execute("SELECT count(*) FROM sessions")
        [(messages,)] = self._sql.execute("SELECT count(*) FROM words_docsize")
        return sessions, messages


@lru_cache(_MAX_KNOWN_CARDS)
def _to_card(data: bytes) -> Card:
    """Decode a card, and cache it: few cards change between two lists, and decoding takes
    most of the time of a list.
    """
    return _CARD_DECODER.decode(data)


def open_tables(path: Path) -> Tables:
    """Open the file, and create it if needed. Raises `apsw.Error` or `OSError`."""
    connection = open_database(path)
    try:
        prepare_schema(connection, SCHEMA_VERSION, _DROP_SQL + _SCHEMA_SQL)
    except BaseException:
        connection.close()
        raise
    return Tables(connection)
