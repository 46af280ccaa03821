"""The file with the facts of a repository: SQLite, outside the repository, and safe to delete.

Several processes may read and write it at the same time. A process that is killed loses only
uncommitted facts. A file that is damaged, of another version or with unknown tables is deleted.
If no file can be written, the facts are in a private one until the process exits.

The paths in it are never opened: a reader first lists the files of the repository.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from refold.code.repomap.facts import Definition, FileFacts, name_hash
from refold.journal.store.sqlite_file import (
    PRIVATE_FILE,
    ForeignTables,
    Sql,
    explain,
    open_cache,
)
from refold.place.private_files import make_directories

# Must be raised when `facts` extracts something else, so that every file is read again.
SCHEMA_VERSION = 1
_SCHEMA_SQL = f"""
DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS facts; DROP TABLE IF EXISTS names;
DROP TABLE IF EXISTS ranks; DROP TABLE IF EXISTS about;
CREATE TABLE files (key INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
 hash TEXT NOT NULL, parser TEXT NOT NULL, problem TEXT NOT NULL, entry INTEGER NOT NULL);
CREATE TABLE facts (key INTEGER PRIMARY KEY, definitions BLOB NOT NULL, imports BLOB NOT NULL);
CREATE TABLE names (key INTEGER PRIMARY KEY, defines BLOB NOT NULL, mentions BLOB NOT NULL);
CREATE TABLE ranks (key INTEGER PRIMARY KEY, rank REAL NOT NULL, weights BLOB NOT NULL,
 links BLOB NOT NULL);
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_TABLE_NAMES = {"files", "facts", "names", "ranks", "about"}
_DEFINITION_DECODER = msgspec.msgpack.Decoder(tuple[Definition, ...])
_STRING_DECODER = msgspec.msgpack.Decoder(tuple[str, ...])
_LINK_DECODER = msgspec.msgpack.Decoder(tuple[tuple[int, float], ...])
_WEIGHT_DECODER = msgspec.msgpack.Decoder(tuple[float, ...])
LISTED_FILES = "listed files"
RANKED_FILES = "ranked files"
CHANGED_FILES = "files read since"
T = TypeVar("T")
_FILES_SQL = "SELECT key, path, state, hash, parser, problem, entry FROM files"
_MAX_KEYS = 500  # in one statement


class KnownFile(Struct, frozen=True):
    """What the map knows about a file from the last time that the file was read.

    `state` has the file's size and times, and `parser` names the parser that read it.
    """

    key: int
    path: str
    state: str
    hash: str
    parser: str
    problem: str
    is_entry: bool


class FileRank(Struct, frozen=True):
    """The rank of a file, the weights of its definitions in their order, and its `links`.

    A link is the key of another file and a weight.
    """

    rank: float
    weights: Sequence[float] = ()
    links: Sequence[tuple[int, float]] = ()


class MapFile:
    """A connection to the file of a map, for one thread at a time.

    Methods that write raise `MapUnwritable`.
    """

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self.path, self._on_problem = path, on_problem
        self.is_private = False
        self._sql = self._open()

    def close(self) -> None:
        self._sql.close()

    def files(self) -> dict[str, KnownFile]:
        return self._to_files(self._sql.execute(_FILES_SQL))

    def files_at(self, paths: Sequence[str]) -> dict[str, KnownFile]:
        """Return what the map knows about the files at `paths`; unknown files are left out."""
        known = dict[str, KnownFile]()
        for start in range(0, len(paths), _MAX_KEYS):
            batch = paths[start : start + _MAX_KEYS]
            marks = ",".join("?" * len(batch))
            known |= self._to_files(
                self._sql.execute(f"{_FILES_SQL} WHERE path IN ({marks})", batch)
            )
        return known

    def _to_files(self, rows: Iterator[tuple[Any, ...]]) -> dict[str, KnownFile]:
        """Return the files by path. Rows with values of wrong types are left out."""
        known = dict[str, KnownFile]()
        for key, path, state, hash_, parser, problem, entry in rows:
            # The file may come from elsewhere, and SQLite does not enforce types.
            texts = (path, state, hash_, parser, problem)
            if all(isinstance(text, str) for text in texts):
                known[path] = KnownFile(key, *texts, bool(entry))
        return known

    def put(
        self, files: Sequence[tuple[str, str, str, FileFacts]], states: Mapping[str, str]
    ) -> None:
        """Store the facts of files, each as (path, state, hash, facts).

        `states` are the new states of files whose content is unchanged. Everything is stored,
        or nothing.
        """
        new_states = [(state, path) for path, state in states.items()]

        def put_all() -> None:
            self._put_files(files)
            self._sql.executemany("UPDATE files SET state = ? WHERE path = ?", new_states)
            before = self.metadata(CHANGED_FILES)
            count = len(files) + (int(before) if before.isdecimal() else 0)
            self._write_metadata({CHANGED_FILES: str(count)})

        self._change(put_all)

    def remove(self, keys: Iterable[int]) -> None:
        rows = [(key,) for key in keys]
        self._change(lambda: self._remove(rows))

    def put_ranks(self, ranks: Iterable[tuple[int, FileRank]], count: int) -> None:
        """Replace all ranks by (key of a file, rank). `count` is the number of ranked files."""
        encode = msgspec.msgpack.encode
        rows = (
            (key, rank.rank, encode(rank.weights), encode(rank.links))
            for key, rank in ranks
        )

        def replace() -> None:
            self._sql.execute("DELETE FROM ranks")
            self._sql.executemany("INSERT INTO ranks VALUES (?, ?, ?, ?)", rows)
            self._write_metadata({RANKED_FILES: str(count), CHANGED_FILES: "0"})

        self._change(replace)

    def counts(self) -> tuple[int, int]:
        """Return the number of known files, and the number of those with a problem."""
        [(count, left_out)] = self._sql.execute(
            "SELECT count(*), count(*) FILTER (WHERE problem != '') FROM files"
        )
        return count, left_out

    def rank_state(self) -> tuple[int, int]:
        """Return the number of ranked files, and the number of files read since the ranking.

        The first is -1 if files were never ranked.
        """
        ranked, changed = self.metadata(RANKED_FILES), self.metadata(CHANGED_FILES)
        return (
            int(ranked) if ranked.isdecimal() else -1,
            int(changed) if changed.isdecimal() else 0,
        )

    def put_metadata(self, metadata: Mapping[str, str]) -> None:
        self._change(lambda: self._write_metadata(metadata))

    def metadata(self, name: str) -> str:
        """Return the value that was stored under this name, or ""."""
        rows = self._sql.execute("SELECT value FROM about WHERE name = ?", (name,))
        return next((str(value) for (value,) in rows), "")

    def definitions(self, keys: Sequence[int]) -> Mapping[int, Sequence[Definition]]:
        rows = self._by_keys("SELECT key, definitions FROM facts WHERE key IN", keys)
        return {key: _decode(_DEFINITION_DECODER, data) for key, data in rows}

    def imports(self, keys: Sequence[int]) -> Mapping[int, Sequence[str]]:
        rows = self._by_keys("SELECT key, imports FROM facts WHERE key IN", keys)
        return {key: _decode(_STRING_DECODER, data) for key, data in rows}

    def all_names(self) -> Iterator[tuple[int, str, bytes, bytes]]:
        """Yield for each file its key, its path, and hashes of names: defined, mentioned."""
        return self._sql.execute(
            "SELECT key, path, defines, mentions FROM names JOIN files USING (key) ORDER BY key"
        )

    def files_defining(self, name: str) -> Sequence[int]:
        """Return the keys of the files that define `name`, or a name with the same hash."""
        return self._keys_with("defines", name)

    def files_mentioning(self, name: str) -> Sequence[int]:
        return self._keys_with("mentions", name)

    def ranks(self, keys: Sequence[int]) -> Mapping[int, FileRank]:
        """Return the rank of each file by its key; files that are not ranked are left out."""
        rows = self._by_keys(
            "SELECT key, rank, weights, links FROM ranks WHERE key IN", keys
        )
        return {
            key: FileRank(
                _number(rank),
                _decode(_WEIGHT_DECODER, weights),
                _decode(_LINK_DECODER, links),
            )
            for key, rank, weights, links in rows
        }

    def ranking(self) -> Sequence[tuple[int, float]]:
        """Return the key and rank of each ranked file, the highest rank first."""
        rows = self._sql.execute("SELECT key, rank FROM ranks ORDER BY rank DESC")
        return [(key, _number(rank)) for key, rank in rows]

    def _by_keys(self, statement: str, keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows for these keys. `statement` ends with IN."""
        for start in range(0, len(keys), _MAX_KEYS):
            batch = keys[start : start + _MAX_KEYS]
            marks = ",".join("?" * len(batch))
            yield from self._sql.execute(f"{statement} ({marks})", batch)

    def _keys_with(self, column: str, name: str) -> Sequence[int]:
        """Return the keys of files whose `column` has the hash of `name`.

        Rarely, the bytes of the hash occur in `column` by chance, and a wrong key is returned,
        too.
        """
        wanted = name_hash(name).to_bytes(4, sys.byteorder)
        rows = self._sql.execute(
            f"SELECT key FROM names WHERE instr({column}, ?) ORDER BY key", (wanted,)
        )
        return [key for (key,) in rows]

    def _put_files(self, files: Sequence[tuple[str, str, str, FileFacts]]) -> None:
        encode = msgspec.msgpack.encode
        for path, state, hash_, facts in files:
            [(key,)] = self._sql.execute(
                "INSERT INTO files (path, state, hash, parser, problem, entry)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET"
                " state = excluded.state, hash = excluded.hash, parser = excluded.parser,"
                " problem = excluded.problem, entry = excluded.entry RETURNING key",
                (path, state, hash_, facts.by, facts.problem, int(facts.is_entry)),
            )
            self._sql.execute(
                "INSERT OR REPLACE INTO facts VALUES (?, ?, ?)",
                (key, encode(facts.definitions), encode(facts.imports)),
            )
            self._sql.execute(
                "INSERT OR REPLACE INTO names VALUES (?, ?, ?)",
                (key, facts.defines, facts.mentions),
            )

    def _remove(self, rows: Sequence[tuple[int]]) -> None:
        for table in ("files", "facts", "names", "ranks"):
            self._sql.executemany(f"DELETE FROM {table} WHERE key = ?", rows)

    def _write_metadata(self, metadata: Mapping[str, str]) -> None:
        self._sql.executemany(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", metadata.items()
        )

    def _change(self, function: Callable[[], object]) -> None:
        """Run a function in a transaction. Raises `MapUnwritable`."""
        import apsw

        try:
            self._sql.execute("BEGIN IMMEDIATE")
            function()
            self._sql.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise MapUnwritable(explain(error)) from error

    def _open(self) -> Sql:
        """Open the file of the map, or a private one if that is impossible."""
        import apsw

        try:
            make_directories(self.path.parent)
            return _open_tables(self.path)
        except (apsw.Error, OSError, ForeignTables) as error:
            self._on_problem(
                f"the map {self.path} cannot be used ({explain(error)}): it is made again "
                "for this answer"
            )
        self.is_private = True
        return _open_tables(PRIVATE_FILE)

    def use_private(self) -> None:
        """Continue with an empty file that only this process can see."""
        self._sql.close()
        self.is_private = True
        self._sql = _open_tables(PRIVATE_FILE)


class MapUnwritable(Exception):
    """Raised if the file of the map cannot be written. The message is the reason, a clause."""


def _open_tables(path: Path) -> Sql:
    return open_cache(path, SCHEMA_VERSION, _SCHEMA_SQL, _TABLE_NAMES)


def map_path(directory: Path, root: str) -> Path:
    """Return the path of a repository's map. `directory` contains all maps."""
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
    return directory / f"{digest}.sqlite"


def _number(value: object) -> float:
    """Return a value from the file if it is a number, otherwise 0.0."""
    return value if isinstance(value, float) and isfinite(value) else 0.0


def _decode(decoder: msgspec.msgpack.Decoder[tuple[T, ...]], data: object) -> tuple[T, ...]:
    """Decode a value from the file. Return () if it cannot be decoded."""
    try:
        return decoder.decode(data if isinstance(data, bytes) else b"")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
