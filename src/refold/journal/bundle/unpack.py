"""Imports an exported session: all of it, or nothing.

It is built in a temporary directory and renamed into place, like a fork. The file may be
hostile, so everything in it is checked. After its last line each journal gets an
`Imported`, after which no fold resumes, allows or chooses anything of what came before.
"""

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from errno import EEXIST, ENOTEMPTY
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, Corrupt
from refold.journal.bundle.archive import (
    MAX_LINE_BYTES,
    ArchiveReader,
    ValidLine,
    numbers_in_range,
    valid_lines,
)
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Imported
from refold.journal.state.children import CHILD_PATTERN
from refold.journal.state.fold import View, apply
from refold.journal.store import blobs, log_file
from refold.journal.store.blobs import blobs_to_share, is_name, variable_blobs_of
from refold.journal.store.disk import Disk, as_journal_errors, make_directories
from refold.journal.store.session_files import CHILDREN_DIRECTORY, SessionFiles, sweep

IMPORT_PREFIX = ".import-"  # followed by the id of the importing process
MAX_DEPTH = 16  # of subagents
_ID_PATTERN = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{4}")
# A subagent's id continues with child names. These ids are never used as paths.
_SHOWN_ID_PATTERN = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}(/{CHILD_PATTERN}){{0,{MAX_DEPTH}}}"
)
_FLUSH_BYTES = 1 << 20


class ImportedSession(Struct, frozen=True):
    """The session `id`, imported from the session `source`, and its size.

    `lacking` counts missing blobs. With `taken`, the id `source` was already in use here.
    """

    id: str
    source: str
    sessions: int
    events: int
    blobs: int
    lacking: int
    taken: bool = False


class _Part(Struct, frozen=True):
    """An imported journal, with what later members are checked against."""

    path: Path
    children: tuple[str, ...]
    blobs: frozenset[str]
    dropped: frozenset[str]  # of Python variables: earlier versions exported them


def unpack(
    home: SessionFiles,
    file: BinaryIO,
    name: str,
    now: float,
    directory: str,
    disk: Disk | None = None,
) -> ImportedSession:
    """Make the session that is in `file`, to continue in `directory`.

    It keeps its id if that is free. Raises `BadInput` for a bad bundle; then nothing
    was made. Waits for the disk: call it in a thread.
    """
    disk = disk or Disk()
    reading = ArchiveReader(file, name)
    source = reading.header().id
    if not _SHOWN_ID_PATTERN.fullmatch(source):
        raise reading.format_error(f"{source[:100]!r} is not the id of a session")
    ours = _ID_PATTERN.fullmatch(source)
    taken = bool(ours) and (home.exists(source) or os.path.lexists(home.path(source)))
    id_ = source if ours and not taken else home.new_id(now)
    temporary = home.root / f"{IMPORT_PREFIX}{os.getpid()}-{id_}"
    with as_journal_errors("write", temporary):
        sweep(home.root, IMPORT_PREFIX)
        try:
            make_directories(temporary, disk)
            taking = _Extraction(
                reading, temporary, Imported(source, id_, directory), now, disk
            )
            result = taking.extract()
            _put_in_place(temporary, home.path(id_), disk)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        disk.sync_directory(home.root)
    return replace(result, taken=taken)


def _put_in_place(temporary: Path, place: Path, disk: Disk) -> None:
    try:
        disk.rename(temporary, place)
    except OSError as error:
        if error.errno not in (ENOTEMPTY, EEXIST):
            raise
        raise BadInput(
            f"another process has just created the session {place.name}; nothing was "
            "imported. Import it again: it then gets an id of its own"
        ) from error


class _Extraction:
    """Extracts the tar into the directory `aside`."""

    def __init__(
        self,
        reading: ArchiveReader,
        temporary: Path,
        news: Imported,
        now: float,
        disk: Disk,
    ) -> None:
        self._reading, self._aside, self._news = reading, temporary, news
        self._now, self._disk = now, disk
        self._parts = dict[str, _Part]()  # the last one is being read
        self._events = self._blobs = 0
        self._kept = set[str]()  # its blobs

    def extract(self) -> ImportedSession:
        for member in self._reading.members():
            above, _, last = member.rpartition("/")
            if last == log_file.FILE_NAME:
                self._extract_session(above)
            else:
                self._extract_blob(above, last)
        if not self._parts:
            raise self._reading.format_error("there is no session in it")
        self._sync_last_session()
        named = sum(len(part.blobs) for part in self._parts.values())
        counts = (len(self._parts), self._events, self._blobs, named - self._blobs)
        return ImportedSession(self._news.id, self._news.source, *counts)

    def _extract_session(self, name: str) -> None:
        path = self._directory_of(name)
        self._sync_last_session()
        make_directories(path, self._disk)
        self._parts[name] = self._extract_journal(name, path)

    def _sync_last_session(self) -> None:
        """Sync the directories of the last session, so that it survives a power failure."""
        for part in [*self._parts.values()][-1:]:
            if self._kept:
                self._disk.sync_directory(part.path / blobs.DIRECTORY_NAME)
            self._disk.sync_directory(part.path)
        self._blobs += len(self._kept)
        self._kept = set[str]()

    def _directory_of(self, name: str) -> Path:
        """The directory of a journal; a subagent's is below the parent that names it."""
        if not name and not self._parts:
            return self._aside
        above, _, child = name.rpartition("/")
        parent = self._parts.get(above)
        born = parent is not None and _child_number(child) <= len(parent.children)
        if not name or name in self._parts or parent is None or not born:
            raise self._reading.format_error(
                f"no session here has started a subagent {name[:100]!r}"
            )
        if (
            parent.children[_child_number(child) - 1] != child
            or name.count("/") >= MAX_DEPTH
        ):
            raise self._reading.format_error(
                f"{name[:100]!r} is not in the place where a subagent belongs"
            )
        path = self._aside
        for part in name.split("/"):
            path = path / CHILDREN_DIRECTORY / part
        return path

    def _extract_journal(self, name: str, path: Path) -> _Part:
        walk = _Walk()
        with self._open_output(path / log_file.FILE_NAME) as output:
            try:
                for good in valid_lines(self._reading.lines(MAX_LINE_BYTES)):
                    walk.check_line(good)
                    output.write(good.line + b"\n")
            except Corrupt as error:
                raise self._reading.format_error(f"{error}") from error
            if not walk.view.seq:
                raise self._reading.format_error("the session has no events")
            output.write(walk.imported_line(self._import_event(name), self._now) + b"\n")
        self._events += walk.view.seq
        return walk.to_part(path)

    def _import_event(self, name: str) -> Imported:
        news = self._news
        if not name:
            return news
        return Imported(f"{news.source}/{name}", f"{news.id}/{name}", news.directory)

    def _extract_blob(self, parent: str, name: str) -> None:
        session, part = next(reversed(self._parts.items()), ("", None))
        if parent != f"{session}/{blobs.DIRECTORY_NAME}".lstrip("/") or part is None:
            raise self._reading.format_error("an exported session has no such file here")
        if name in part.dropped:
            for _ in self._reading.pieces():
                pass
            return
        if name not in part.blobs or name in self._kept:
            raise self._reading.format_error(f"no event here names a blob {name[:80]!r}")
        make_directories(part.path / blobs.DIRECTORY_NAME, self._disk)
        digest = sha256()
        with self._open_output(part.path / blobs.DIRECTORY_NAME / name) as output:
            for piece in self._reading.pieces():
                digest.update(piece)
                output.write(piece)
            if digest.hexdigest() != name:
                raise self._reading.format_error(
                    f"the blob {name} does not match its checksum"
                )
        self._kept.add(name)

    @contextmanager
    def _open_output(self, path: Path) -> Generator["_Out"]:
        """Open a new file, and sync it unless an error is raised."""
        output = _Out(path, self._disk)
        try:
            yield output
            output.sync()
        finally:
            output.close()


class _Walk:
    """Walk a journal and check what it refers to, so that opening it later is safe."""

    def __init__(self) -> None:
        self.view = View()
        self._head, self._epoch = Head(), 0
        self._children = list[str]()
        self._blobs, self._variables = set[str](), set[str]()

    def check_line(self, good: ValidLine) -> None:
        says, number = good.says, good.head.seq
        try:
            event = codec.load(says.kind, says.data)
            if not numbers_in_range(event):
                raise Corrupt(number, "it has a number that is too large")
            entry = Entry(
                says.seq, event, says.at, says.epoch, says.turn, says.by, says.cause
            )
            self.view = apply(self.view, entry)
            named, variables = set(blobs_to_share(event)), set(variable_blobs_of(event))
        # An event that makes a fold fail, such as one nested too deep, would fail again
        # whenever the session is opened.
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            LookupError,
            RecursionError,
        ) as error:
            raise Corrupt(number, f"no session can hold this event ({error})") from error
        if not all(map(is_name, named | variables)):
            raise Corrupt(number, "a blob's name in it is not valid")
        self._blobs |= named
        self._variables |= variables
        self._head, self._epoch = good.head, max(self._epoch, says.epoch)

    def imported_line(self, news: Imported, now: float) -> bytes:
        """The line with the `Imported` event, which is appended to the journal."""
        entry = Entry(self._head.seq + 1, news, now, self._epoch + 1, by="import")
        line, _ = codec.encode(entry, self._head)
        return line

    def to_part(self, path: Path) -> _Part:
        children = tuple(child.name for child in self.view.children.children)
        named = frozenset(self._blobs)
        return _Part(path, children, named, frozenset(self._variables) - named)


class _Out:
    """An output file that only its owner can read, written in few large pieces."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._file, self._disk = disk.open(path, new=True), disk
        self._waiting, self._size, self._at = list[bytes](), 0, 0

    def write(self, piece: bytes) -> None:
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def sync(self) -> None:
        self._flush()
        self._disk.sync(self._file)

    def close(self) -> None:
        self._disk.close(self._file)

    def _flush(self) -> None:
        self._disk.write(self._file, b"".join(self._waiting), self._at)
        self._at += self._size
        self._waiting, self._size = [], 0


def _child_number(child: str) -> int:
    """The number in a child's name; for any other name 2**31, which no child has."""
    if not re.fullmatch(CHILD_PATTERN, child):
        return 2**31
    return int(child.rpartition("-")[2])
