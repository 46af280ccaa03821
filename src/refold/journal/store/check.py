"""Checks whether a session's record is intact: what is damaged, where, and what is lost.

It takes no lock, so it works while the session runs, and it repairs nothing. Unlike
`codec`, it continues after a bad line. Whether that line was changed, inserted, or
follows a gap shows at the next line, which continues from one of the three.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct

from refold.errors import Corrupt, JournalError, WrongFormat
from refold.journal.events import codec
from refold.journal.events.codec import Head, Line
from refold.journal.events.kinds import Imported
from refold.journal.store import log_file, writer_lock
from refold.journal.store.blobs import (
    NAMING_KINDS,
    BlobFiles,
    blobs_to_share,
    variable_blobs_of,
)
from refold.journal.store.disk import Disk, as_journal_errors

Kind: TypeAlias = Literal["changed", "extra", "gap"]


class Damage(Struct, frozen=True):
    """Damage in a journal. `line` counts from 1; 0 means the whole file."""

    file: Path
    line: int
    what: str
    lost: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else f"{self.file}"
        return f"{place}: {self.what}; lost: {self.lost}"


class JournalCheck(Struct, frozen=True):
    """`events` counts the good events, and `blobs` the blobs that they name."""

    path: Path
    events: int
    blobs: int
    damages: tuple[Damage, ...] = ()


def check(directory: Path) -> JournalCheck:
    """Check every line of a session and every blob that a line names."""
    # Read the note first: a running writer may append after this.
    note = writer_lock.read(directory)
    path = directory / log_file.FILE_NAME
    *whole, torn = _content(path).split(b"\n")
    walk = _Walk(path)
    try:
        walk.check_lines(whole)
    except WrongFormat as error:
        damage = Damage(path, error.line, error.what, "nothing")
        return JournalCheck(directory, len(walk.hashes), len(walk.blobs), (damage,))
    walk.blobs = {**walk.variables, **walk.blobs}
    damages = [
        *walk.damages,
        *_check_end(walk, len(whole), torn),
        *_check_lock_note(walk, len(whole), note, directory),
        *_check_blobs(walk, BlobFiles(directory, Disk())),
    ]
    return JournalCheck(directory, len(walk.hashes), len(walk.blobs), tuple(damages))


class _Suspect(Struct, frozen=True):
    """A bad line, with the head that follows it for each possible kind of damage."""

    number: int
    before: Head
    says: Head
    ways: tuple[tuple[Kind, Head], ...]

    def likely(self) -> Kind:
        ahead = self.says.seq - self.before.seq
        return "changed" if ahead == 1 else "gap" if ahead > 1 else "extra"


class _Walk:
    """Follows the chain, also across damaged lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.head = path, Head()
        self.damages = list[Damage]()
        self.blobs = dict[str, int]()  # the line that names it first
        self.variables = dict[str, int]()  # of Python, likewise
        self.hashes = dict[int, str]()  # of the valid events
        self._suspect: _Suspect | None = None

    def check_lines(self, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines, start=1):
            if not self._follows(number, line):
                self._report_suspect(self._suspect and self._suspect.likely())
                says, should = codec.possible_heads(line, self.head)
                changed = Head(should.seq, says.h)
                ways: tuple[tuple[Kind, Head], ...] = (
                    ("changed", changed),
                    ("changed", should),
                    ("extra", self.head),
                    ("gap", says),
                )
                self._suspect = _Suspect(number, self.head, says, ways)
        self._report_suspect(self._suspect and self._suspect.likely())

    def _follows(self, number: int, line: bytes) -> bool:
        """Whether the line continues from a known or a suspected head."""
        ways = self._suspect.ways if self._suspect else ((None, self.head),)
        for kind, head in ways:
            try:
                [(known, after)] = codec.follow([line], head)
            except WrongFormat:
                raise
            except (Corrupt, DecodeError):
                continue
            if known.seq != after.seq:  # a good line, but not the next one
                continue
            self._report_suspect(kind)
            self.head, self.hashes[after.seq] = after, after.h
            self._see_blobs(number, known)
            return True
        return False

    def _see_blobs(self, number: int, line: Line) -> None:
        if line.kind == Imported.__name__:
            self.variables.clear()  # they are never imported
        if line.kind not in NAMING_KINDS:
            return
        event = codec.load(line.kind, line.data)
        for name in blobs_to_share(event):
            self.blobs.setdefault(name, number)
        for name in variable_blobs_of(event):
            self.variables.setdefault(name, number)

    def _report_suspect(self, kind: Kind | None) -> None:
        """Report the suspected line as damage of this kind, and continue from its head."""
        suspect, self._suspect = self._suspect, None
        if suspect is None or kind is None:
            return
        due, seq = suspect.before.seq + 1, suspect.says.seq
        self.head = next(head for way, head in suspect.ways if way == kind)
        if kind == "changed":
            problem, lost = "it was changed after it was written", _events_phrase(due, due)
        elif kind == "gap":
            self.hashes[seq] = suspect.says.h
            problem, lost = f"it is event {seq}, not {due}", _events_phrase(due, seq - 1)
        else:
            place = "a second time" if seq in self.hashes else "out of its place"
            problem, lost = f"event {seq} is here {place}", "nothing"
        self.damages.append(Damage(self.path, suspect.number, problem, lost))


def _check_end(walk: _Walk, count: int, torn: bytes) -> Iterator[Damage]:
    if torn:
        problem = f"it has no end after {len(torn)} bytes; the next writer cuts it off"
        lost = _events_phrase(walk.head.seq + 1, walk.head.seq + 1)
        yield Damage(
            walk.path, count + 1, problem, f"{lost}, if that was ever acknowledged"
        )


def _check_lock_note(
    walk: _Walk, count: int, note: writer_lock.LockNote, directory: Path
) -> Iterator[Damage]:
    seq, h = note.head
    if note.state == "damaged":
        problem = "it cannot be read"
        yield Damage(
            directory / writer_lock.FILE_NAME,
            0,
            problem,
            "the writer and the end of the lines",
        )
    elif seq > walk.head.seq:
        problem = f"it ends at event {walk.head.seq}, but its writer recorded event {seq}"
        yield Damage(walk.path, count, problem, _events_phrase(walk.head.seq + 1, seq))
    elif walk.hashes.get(seq, h) != h:
        problem = f"event {seq} is not the one that its writer recorded"
        yield Damage(walk.path, 0, problem, "what was there before")


def _check_blobs(walk: _Walk, blobs: BlobFiles) -> Iterator[Damage]:
    for name, line in walk.blobs.items():
        try:
            blobs.get(name)
        except JournalError as error:
            yield Damage(blobs.path(name), 0, str(error), f"the rest of line {line}")


def _content(path: Path) -> bytes:
    try:
        with as_journal_errors("read", path):
            data = path.read_bytes()
            if data and not data.endswith(b"\n"):  # a writer may be writing it
                data = path.read_bytes()
            return data
    except JournalError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise JournalError(f"there is no journal in {path.parent}") from error
        raise


def _events_phrase(first: int, last: int) -> str:
    return f"event {first}" if first == last else f"events {first} to {last}"
