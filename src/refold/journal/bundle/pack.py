"""Exports a session as a tar: its journal, its blobs and its subagents.

The export changes nothing, so it also works while the session runs. It has only one line, or
one piece of a blob, in memory, so the session may have any length. Damaged content is left out
and reported. Checkpoints are not included, because they are copies of the user's files. Python
variables are not, because secrets in them are not masked.
"""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput, Corrupt
from refold.journal.bundle.archive import (
    PIECE_BYTES,
    end_of_archive,
    header_member,
    member,
    valid_lines,
)
from refold.journal.events import codec
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import Imported
from refold.journal.state.children import CHILD_PATTERN
from refold.journal.store import blobs, log_file, writer_lock
from refold.journal.store.blobs import NAMING_KINDS, blobs_to_share, is_name
from refold.journal.store.disk import as_journal_errors
from refold.journal.store.session_files import CHILDREN_DIRECTORY
from refold.journal.store.tree_reader import is_written


class _Survey(Struct, frozen=True):
    """The size and state of a journal: `events` valid lines in its first `size` bytes.

    `damage` says what is wrong after the valid lines; "" if nothing is. A session in which
    nothing has happened since its import is exported as it was imported: the lines that the
    import added do not count, and `source` is the id that the session had then. For any
    other session `source` is "".
    """

    events: int
    size: int
    children: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()  # in the order in which they are first named
    damage: str = ""
    source: str = ""


class _Part(Struct, frozen=True):
    """One journal. `name` is its path below the exported session: "child-1/child-2"."""

    name: str
    path: Path
    survey: _Survey
    blobs: dict[str, int]  # the sizes of the valid blobs


class SessionPacker:
    """Surveys all journals when it is created; `pieces` then yields the tar.

    `damages` describes what the tar lacks because it is missing or damaged.

    Raises `BadInput` if the session is empty. A subagent is exported like any session, and does
    not depend on its parent once it is imported.
    """

    def __init__(self, path: Path, session: str, *, children: bool = True) -> None:
        self.damages = list[str]()
        self._with_children = children
        self._parts = list(self._survey_tree(name="", path=path))
        first = self._parts[0].survey
        if not first.events:
            why = f": {first.damage}" if first.damage else ""
            raise BadInput(f"there is nothing valid to export in {session}{why}")
        # An unchanged import is exported under the id that it had before.
        self.id = first.source or session

    @property
    def events(self) -> int:
        return sum(part.survey.events for part in self._parts)

    @property
    def sessions(self) -> int:
        return len(self._parts)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the tar. Raises `JournalError` if the session cannot be read."""
        pieces = self._pieces()
        while True:
            # Only the reading is in this block: the caller's errors are raised at `yield`.
            with as_journal_errors("read", self._parts[0].path):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the tar, but do not convert errors of reading."""
        yield from header_member(self.id)
        for part in self._parts:
            prefix = f"{part.name}/" if part.name else ""
            journal = log_file.FILE_NAME
            yield from _file(prefix + journal, part.path / journal, part.survey.size)
            for name, size in part.blobs.items():
                blob = f"{blobs.DIRECTORY_NAME}/{name}"
                yield from _file(prefix + blob, part.path / blob, size)
        yield end_of_archive()

    def _survey_tree(self, name: str, path: Path) -> Iterator[_Part]:
        """Yield the session at `path` and its subagents. `name` is "" for the session itself,
        or "child-1/child-2" for a subagent.
        """
        survey = _survey(path)
        if survey.damage:
            self.damages.append(survey.damage)
        valid_blobs = dict[str, int]()
        for blob in survey.blobs:
            size = self._check_blob(path / blobs.DIRECTORY_NAME, blob)
            if size is not None:
                valid_blobs[blob] = size
        if survey.events or not name:  # an import refuses a subagent without events
            yield _Part(name, path, survey, valid_blobs)
        if not self._with_children:
            return
        for child in survey.children:
            child_path = path / CHILDREN_DIRECTORY / child
            # A fork also names subagents of its source, which are not below it.
            if _has_journal(child_path):
                yield from self._survey_tree(f"{name}/{child}".lstrip("/"), child_path)

    def _check_blob(self, directory: Path, name: str) -> int | None:
        """Return the blob's size; if it is missing or damaged, report that and return None."""
        digest = sha256()
        if not is_name(name):
            self.damages.append(f"the journal names a blob {name!r}: there is none")
            return None
        path = directory / name
        try:
            size = path.stat().st_size
            for piece in _read_pieces(path, size):
                digest.update(piece)
        except FileNotFoundError:
            self.damages.append(f"the blob {path} is missing")
            return None
        except OSError as error:
            self.damages.append(f"the blob {path} cannot be read: {error.strerror}")
            return None
        if digest.hexdigest() == name:
            return size
        self.damages.append(f"the blob {path} was changed after it was written")
        return None


def _file(name: str, path: Path, size: int) -> Iterator[bytes]:
    """Yield a tar member with the first `size` bytes of a file, even if the file has grown."""
    return member(name, size, _read_pieces(path, size))


def _read_pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file in pieces; fewer if the file is shorter."""
    with path.open("rb") as file:
        while piece := file.read(min(size, PIECE_BYTES)):
            size -= len(piece)
            yield piece


def _survey(path: Path) -> _Survey:
    """Survey the journal in this directory. Raises `OSError` if it has none."""
    file = path / log_file.FILE_NAME
    # These are read before the lines, because a writer may be adding lines.
    has_writer = is_written(path)
    noted_seq, _ = writer_lock.read(path).head
    scan = _JournalScan()
    damage = ""
    size = file.stat().st_size
    try:
        for valid in valid_lines(scan.complete_lines(file, size)):
            scan.count_line(valid.line, valid.envelope.kind)
    except Corrupt as error:
        damage = f"{file}: {error}"
    if scan.is_torn and not damage and not has_writer:
        damage = f"{file}: its last line has no end, and is left out"
    if noted_seq > scan.events and not damage:
        note_text = f"its writer left it at event {noted_seq}"
        damage = f"{file}: it ends at event {scan.events}, but {note_text}"
    return scan.survey(damage)


def _lines_in(file: Path, size: int) -> Iterator[bytes]:
    """Yield the lines in the first `size` bytes of a file."""
    with file.open("rb") as opened:
        bytes_left = size
        while bytes_left > 0 and (line := opened.readline(bytes_left)):
            bytes_left -= len(line)
            yield line


class _JournalScan:
    """Counts the lines of a journal, and collects the subagents and blobs that they name."""

    def __init__(self) -> None:
        self.is_torn = False
        self.events = self._size = 0
        self._children = dict[str, None]()
        self._blobs = dict[str, None]()
        # If the last line is an import: the size before it, and its event.
        self._import_at_end: tuple[int, Imported] | None = None

    def complete_lines(self, file: Path, size: int) -> Iterator[bytes]:
        """Yield the lines in the first `size` bytes of a file, without line ends."""
        for line in _lines_in(file, size):
            self.is_torn = not line.endswith(b"\n")
            if not self.is_torn:
                yield line[:-1]

    def count_line(self, line: bytes, kind: str) -> None:
        """Count a valid line, and collect the subagents and blobs that it names."""
        self._import_at_end = None
        if kind in NAMING_KINDS or kind in ("ChildBorn", "Imported"):
            self._note_references(line)
        self.events += 1
        self._size += len(line) + 1

    def survey(self, damage: str) -> _Survey:
        """Return what was counted. If the last line is an import, that line is left out."""
        events, size, source = self.events, self._size, ""
        if self._import_at_end and not damage:
            size, imported = self._import_at_end
            events -= 1
            source = imported.source
        return _Survey(
            events, size, tuple(self._children), tuple(self._blobs), damage, source
        )

    def _note_references(self, line: bytes) -> None:
        """Collect the subagent or the blobs that the event of this line names."""
        event = codec.decode_unchecked(line)
        match event:
            case ChildBorn(child) if re.fullmatch(CHILD_PATTERN, child):
                self._children[child] = None
            case Imported():
                self._import_at_end = (self._size, event)
            case None:
                pass
            case _:
                self._blobs |= dict.fromkeys(blobs_to_share(event))


def _has_journal(path: Path) -> bool:
    """Whether there is a journal at `path`."""
    return os.path.isfile(path / log_file.FILE_NAME)
