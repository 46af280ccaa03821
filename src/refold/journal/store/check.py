"""Checks whether a session's record is intact: what is damaged, where, and what is lost.

It takes no lock, so it works while the session runs, and it repairs nothing. Unlike
`codec`, it continues after an invalid line. That line was changed, was inserted, or follows
a gap; the next line shows which of the three, by the hash from which it continues.
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
    """The result of a check. `events` counts the valid events, and `blobs` the blobs that they
    name.
    """

    path: Path
    events: int
    blobs: int
    damages: tuple[Damage, ...] = ()


def check(directory: Path) -> JournalCheck:
    """Check every line of a session and every blob that a line names."""
    # The note is read first, because a running writer may append after this.
    note = writer_lock.read(directory)
    path = directory / log_file.FILE_NAME
    *complete_lines, partial_line = _content(path).split(b"\n")
    walk = _Walk(path)
    try:
        walk.check_lines(complete_lines)
    except WrongFormat as error:
        damage = Damage(path, error.line, error.what, "nothing")
        return JournalCheck(directory, len(walk.hashes), len(walk.blobs), (damage,))
    walk.blobs = {**walk.variables, **walk.blobs}  # both kinds are checked and counted
    line_count = len(complete_lines)
    damages = [
        *walk.damages,
        *_check_end(walk, line_count, partial_line),
        *_check_lock_note(walk, line_count, note, directory),
        *_check_blobs(walk, BlobFiles(directory, Disk())),
    ]
    return JournalCheck(directory, len(walk.hashes), len(walk.blobs), tuple(damages))


class _Suspect(Struct, frozen=True):
    """An invalid line, with the head that follows it for each possible kind of damage."""

    number: int
    before: Head
    stated: Head
    possible_heads: tuple[tuple[Kind, Head], ...]

    @property
    def likely_kind(self) -> Kind:
        """The kind of damage, judged by the number that the line states."""
        ahead = self.stated.seq - self.before.seq
        if ahead == 1:
            return "changed"
        return "gap" if ahead > 1 else "extra"


class _Walk:
    """Follows the chain, also across damaged lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.head = path, Head()
        self.damages = list[Damage]()
        self.blobs = dict[str, int]()  # maps each blob to the first line that names it
        self.variables = dict[str, int]()  # the same for the blobs of Python variables
        self.hashes = dict[int, str]()  # the hashes of valid events, by number
        self._suspect: _Suspect | None = None

    def check_lines(self, lines: Iterable[bytes]) -> None:
        """Follow the lines, and report each line that does not follow.

        The next valid line shows what kind of damage it is. If no valid line comes before the
        next invalid line or the end, the likely kind is reported.
        """
        for number, line in enumerate(lines, start=1):
            if self._follow_line(number, line):
                continue
            self._report_likely_damage()
            stated, computed = codec.possible_heads(line, self.head)
            possible_heads: tuple[tuple[Kind, Head], ...] = (
                ("changed", Head(computed.seq, stated.h)),  # the content, but not the hash
                ("changed", computed),  # the hash, but not the content
                ("extra", self.head),
                ("gap", stated),
            )
            self._suspect = _Suspect(number, self.head, stated, possible_heads)
        self._report_likely_damage()

    def _follow_line(self, number: int, line: bytes) -> bool:
        """Continue with `line` if it follows the head, or a possible head of an invalid line.

        The invalid line is then reported. Return False if `line` follows no such head.
        """
        possible_heads = (
            self._suspect.possible_heads if self._suspect else ((None, self.head),)
        )
        for kind, head in possible_heads:
            try:
                [(decoded, head_after)] = codec.follow([line], head)
            except WrongFormat:
                raise
            except (Corrupt, DecodeError):
                continue
            if decoded.seq != head_after.seq:  # a valid line, but not the next one
                continue
            self._report_suspect(kind)
            self.head = head_after
            self.hashes[head_after.seq] = head_after.h
            self._note_blobs(number, decoded)
            return True
        return False

    def _note_blobs(self, number: int, line: Line) -> None:
        """Record the line at which each blob is first named."""
        if line.kind == Imported.__name__:
            self.variables.clear()  # they are never imported
        if line.kind not in NAMING_KINDS:
            return
        event = codec.load(line.kind, line.data)
        for name in blobs_to_share(event):
            self.blobs.setdefault(name, number)
        for name in variable_blobs_of(event):
            self.variables.setdefault(name, number)

    def _report_likely_damage(self) -> None:
        if self._suspect is not None:
            self._report_suspect(self._suspect.likely_kind)

    def _report_suspect(self, kind: Kind | None) -> None:
        """Report the invalid line, if any, as damage of this kind, and continue from its head."""
        suspect, self._suspect = self._suspect, None
        if suspect is None or kind is None:
            return
        expected, seq = suspect.before.seq + 1, suspect.stated.seq
        self.head = next(
            head for possible_kind, head in suspect.possible_heads if possible_kind == kind
        )
        if kind == "changed":
            problem = "it was changed after it was written"
            lost = _events_phrase(expected, expected)
        elif kind == "gap":  # the line itself is valid, but lines before it are missing
            self.hashes[seq] = suspect.stated.h
            problem = f"it is event {seq}, not {expected}"
            lost = _events_phrase(expected, seq - 1)
        else:
            place = "a second time" if seq in self.hashes else "out of its place"
            problem = f"event {seq} is here {place}"
            lost = "nothing"
        self.damages.append(Damage(self.path, suspect.number, problem, lost))


def _check_end(walk: _Walk, count: int, partial_line: bytes) -> Iterator[Damage]:
    """Yield the damage if `partial_line` follows the `count` complete lines."""
    if partial_line:
        problem = (
            f"it has no end after {len(partial_line)} bytes; the next writer cuts it off"
        )
        seq = walk.head.seq + 1
        lost = f"{_events_phrase(seq, seq)}, if that was ever acknowledged"
        yield Damage(walk.path, count + 1, problem, lost)


def _check_lock_note(
    walk: _Walk, count: int, note: writer_lock.LockNote, directory: Path
) -> Iterator[Damage]:
    """Yield the damage if the note of the last writer does not fit the journal."""
    noted_seq, noted_hash = note.head
    if note.state == "damaged":
        path = directory / writer_lock.FILE_NAME
        lost = "the writer and the end of the lines"
        yield Damage(path, line=0, what="it cannot be read", lost=lost)
    elif noted_seq > walk.head.seq:
        end_seq = walk.head.seq
        problem = f"it ends at event {end_seq}, but its writer recorded event {noted_seq}"
        yield Damage(walk.path, count, problem, _events_phrase(end_seq + 1, noted_seq))
    # The event of an invalid line has no known hash; that line is reported already.
    elif walk.hashes.get(noted_seq, noted_hash) != noted_hash:
        problem = f"event {noted_seq} is not the one that its writer recorded"
        yield Damage(walk.path, line=0, what=problem, lost="what was there before")


def _check_blobs(walk: _Walk, blobs: BlobFiles) -> Iterator[Damage]:
    """Yield the damage for each named blob that is missing or was changed."""
    for name, line in walk.blobs.items():
        try:
            blobs.get(name)
        except JournalError as error:
            lost = f"the rest of line {line}"
            yield Damage(blobs.path(name), line=0, what=str(error), lost=lost)


def _content(path: Path) -> bytes:
    """Return the bytes of a journal. Raises `JournalError` if there is none."""
    try:
        with as_journal_errors("read", path):
            data = path.read_bytes()
            if data and not data.endswith(b"\n"):  # a writer may be writing this line
                data = path.read_bytes()
            return data
    except JournalError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise JournalError(f"there is no journal in {path.parent}") from error
        raise


def _events_phrase(first: int, last: int) -> str:
    return f"event {first}" if first == last else f"events {first} to {last}"
