"""Imports an exported session, completely or not at all.

The session is built in a temporary directory and renamed into place, like a fork. The file
may be hostile, so everything in it is checked. An `Imported` event is added at the end of
each journal. It cancels what earlier events left open or set: no call is resumed, and no
grant and no choice of the user stays in effect.
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

    `lacking` counts missing blobs. If `taken`, another session here already had the id
    `source`, so the imported session got a new id.
    """

    id: str
    source: str
    sessions: int
    events: int
    blobs: int
    lacking: int
    taken: bool = False


class _Part(Struct, frozen=True):
    """An imported journal, and the values against which later members are checked."""

    path: Path
    children: tuple[str, ...]
    blobs: frozenset[str]
    # Names of Python variables' blobs, which earlier versions exported.
    dropped: frozenset[str]


def unpack(
    home: SessionFiles,
    file: BinaryIO,
    name: str,
    now: float,
    directory: str,
    disk: Disk | None = None,
) -> ImportedSession:
    """Import the session in `file`, to be continued in `directory`.

    The imported session keeps its id if no other session here has that id. Raises `BadInput`
    for an invalid bundle, and then creates nothing. It waits for the disk: call it in a thread.
    """
    disk = disk or Disk()
    archive = ArchiveReader(file, name)
    source = archive.header().id
    if not _SHOWN_ID_PATTERN.fullmatch(source):
        raise archive.format_error(f"{source[:100]!r} is not the id of a session")
    # Only an id that a new session could have is used as the name of a directory.
    is_usable = _ID_PATTERN.fullmatch(source) is not None
    taken = is_usable and (home.exists(source) or os.path.lexists(home.path(source)))
    id_ = source if is_usable and not taken else home.new_id(now)
    temporary = home.root / f"{IMPORT_PREFIX}{os.getpid()}-{id_}"
    with as_journal_errors("write", temporary):
        sweep(home.root, IMPORT_PREFIX)
        try:
            make_directories(temporary, disk)
            extraction = _Extraction(
                archive, temporary, Imported(source, id_, directory), now, disk
            )
            result = extraction.extract()
            _put_in_place(temporary, home.path(id_), disk)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        disk.sync_directory(home.root)
    return replace(result, taken=taken)


def _put_in_place(temporary: Path, place: Path, disk: Disk) -> None:
    """Move the imported session to its place. Raises `BadInput` if a session is there."""
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
    """Extracts the tar into a temporary directory."""

    def __init__(
        self,
        archive: ArchiveReader,
        temporary: Path,
        imported: Imported,
        now: float,
        disk: Disk,
    ) -> None:
        self._archive, self._temporary, self._imported = archive, temporary, imported
        self._now, self._disk = now, disk
        self._parts = dict[str, _Part]()  # the last part is being read
        self._events = self._blobs = 0
        self._extracted_blobs = set[str]()  # the blobs of the last part

    def extract(self) -> ImportedSession:
        """Extract all sessions and blobs, and return what was imported."""
        for member in self._archive.members():
            above, _, last = member.rpartition("/")
            if last == log_file.FILE_NAME:
                self._extract_session(above)
            else:
                self._extract_blob(above, last)
        if not self._parts:
            raise self._archive.format_error("there is no session in it")
        self._sync_last_session()
        named_blobs = sum(len(part.blobs) for part in self._parts.values())
        return ImportedSession(
            self._imported.id,
            self._imported.source,
            sessions=len(self._parts),
            events=self._events,
            blobs=self._blobs,
            lacking=named_blobs - self._blobs,
        )

    def _extract_session(self, name: str) -> None:
        """Extract the journal of the session or subagent `name`; "" is the session itself."""
        path = self._directory_of(name)
        self._sync_last_session()
        make_directories(path, self._disk)
        self._parts[name] = self._extract_journal(name, path)

    def _sync_last_session(self) -> None:
        """Sync the directories of the newest extracted session, so that it survives a power
        failure.
        """
        if self._parts:
            part = next(reversed(self._parts.values()))
            if self._extracted_blobs:
                self._disk.sync_directory(part.path / blobs.DIRECTORY_NAME)
            self._disk.sync_directory(part.path)
        self._blobs += len(self._extracted_blobs)
        self._extracted_blobs = set[str]()

    def _directory_of(self, name: str) -> Path:
        """Return the directory of a journal.

        The session itself must come first. A subagent must come after its parent, must be named
        by its parent, and may come only once.
        """
        if not name and not self._parts:
            return self._temporary
        above, _, child = name.rpartition("/")
        number = _child_number(child)
        parent = self._parts.get(above)
        is_new = bool(name) and name not in self._parts
        if not is_new or parent is None or number > len(parent.children):
            raise self._archive.format_error(
                f"no session here has started a subagent {name[:100]!r}"
            )
        if parent.children[number - 1] != child or name.count("/") >= MAX_DEPTH:
            raise self._archive.format_error(
                f"{name[:100]!r} is not in the place where a subagent belongs"
            )
        path = self._temporary
        for part in name.split("/"):
            path = path / CHILDREN_DIRECTORY / part
        return path

    def _extract_journal(self, name: str, path: Path) -> _Part:
        """Write a journal that was checked, with an `Imported` at its end."""
        checker = _JournalChecker()
        with self._open_output(path / log_file.FILE_NAME) as output:
            try:
                for good in valid_lines(self._archive.lines(MAX_LINE_BYTES)):
                    checker.check_line(good)
                    output.write(good.line + b"\n")
            except Corrupt as error:
                raise self._archive.format_error(f"{error}") from error
            if not checker.view.seq:
                raise self._archive.format_error("the session has no events")
            last_line = checker.imported_line(self._import_event(name), self._now)
            output.write(last_line + b"\n")
        self._events += checker.view.seq
        return checker.to_part(path)

    def _import_event(self, name: str) -> Imported:
        """Return the `Imported` event for the subagent `name`; "" is the session itself."""
        imported = self._imported
        if not name:
            return imported
        return Imported(
            f"{imported.source}/{name}", f"{imported.id}/{name}", imported.directory
        )

    def _extract_blob(self, parent: str, name: str) -> None:
        """Extract the blob `name` of the session that was extracted last.

        `parent` is the folder of the blob in the tar, which must be that of this session's
        blobs.
        """
        session, part = next(reversed(self._parts.items()), ("", None))
        expected_parent = f"{session}/{blobs.DIRECTORY_NAME}".lstrip("/")
        if part is None or parent != expected_parent:
            raise self._archive.format_error("an exported session has no such file here")
        if name in part.dropped:
            for _ in self._archive.pieces():  # read over its content
                pass
            return
        if name not in part.blobs or name in self._extracted_blobs:
            raise self._archive.format_error(f"no event here names a blob {name[:80]!r}")
        make_directories(part.path / blobs.DIRECTORY_NAME, self._disk)
        digest = sha256()
        with self._open_output(part.path / blobs.DIRECTORY_NAME / name) as output:
            for piece in self._archive.pieces():
                digest.update(piece)
                output.write(piece)
            if digest.hexdigest() != name:
                raise self._archive.format_error(
                    f"the blob {name} does not match its checksum"
                )
        self._extracted_blobs.add(name)

    @contextmanager
    def _open_output(self, path: Path) -> Generator["_OutputFile"]:
        """Open a new file, and sync it unless an error is raised."""
        output = _OutputFile(path, self._disk)
        try:
            yield output
            output.sync()
        finally:
            output.close()


class _JournalChecker:
    """Checks what a journal refers to, line by line, so that opening it later is safe."""

    def __init__(self) -> None:
        self.view = View()
        self._head, self._epoch = Head(), 0
        self._children = list[str]()
        self._blobs, self._variables = set[str](), set[str]()

    def check_line(self, good: ValidLine) -> None:
        """Check the event of a line and collect its blobs. Raises `Corrupt` if opening would
        fail.
        """
        envelope, number = good.envelope, good.head.seq
        try:
            event = codec.load(envelope.kind, envelope.data)
            if not numbers_in_range(event):
                raise Corrupt(number, "it has a number that is too large")
            entry = Entry(
                seq=envelope.seq,
                event=event,
                at=envelope.at,
                epoch=envelope.epoch,
                turn=envelope.turn,
                by=envelope.by,
                cause=envelope.cause,
            )
            self.view = apply(self.view, entry)
            blobs_of_event = set(blobs_to_share(event))
            variables_of_event = set(variable_blobs_of(event))
        # If an event makes a fold fail, such as one that is nested too deeply, it would
        # fail again whenever the session is opened.
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            LookupError,
            RecursionError,
        ) as error:
            raise Corrupt(number, f"no session can hold this event ({error})") from error
        if not all(map(is_name, blobs_of_event | variables_of_event)):
            raise Corrupt(number, "a blob's name in it is not valid")
        self._blobs |= blobs_of_event
        self._variables |= variables_of_event
        self._head = good.head
        self._epoch = max(self._epoch, envelope.epoch)

    def imported_line(self, imported: Imported, now: float) -> bytes:
        """Return the line with the `Imported` event, which is appended to the journal."""
        entry = Entry(self._head.seq + 1, imported, now, self._epoch + 1, by="import")
        line, _ = codec.encode(entry, self._head)
        return line

    def to_part(self, path: Path) -> _Part:
        """Return the part at `path`. Blobs that only variables name are dropped."""
        children = tuple(child.name for child in self.view.children.children)
        named = frozenset(self._blobs)
        return _Part(path, children, named, frozenset(self._variables) - named)


class _OutputFile:
    """An output file that only its owner can read, written in few large pieces."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._file = disk.open(path, new=True)
        self._pieces = list[bytes]()  # that are not written yet
        self._size = 0  # of these pieces
        self._offset = 0  # where they will be written

    def write(self, piece: bytes) -> None:
        """Add a piece, which is written together with later ones."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def sync(self) -> None:
        self._flush()
        self._disk.sync(self._file)

    def close(self) -> None:
        self._disk.close(self._file)

    def _flush(self) -> None:
        self._disk.write(self._file, b"".join(self._pieces), self._offset)
        self._offset += self._size
        self._pieces, self._size = [], 0


def _child_number(child: str) -> int:
    """Return the number in a child's name; for another name 2**31, which no child has."""
    if not re.fullmatch(CHILD_PATTERN, child):
        return 2**31
    return int(child.rpartition("-")[2])
