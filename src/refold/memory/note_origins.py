"""Where notes come from, and what was forgotten.

Stored as JSON next to the Markdown file, which is all that the user edits. A damaged file of
origins counts as empty: no note is lost. A damaged list of forgotten notes is an error,
because they could be learned again. It has only hashes of them.
"""

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field

from refold.errors import BadInput
from refold.memory import memory_files
from refold.memory.grounding import overlap, stems

T = TypeVar("T", bound=Struct)
MAX_CHANGES = 40  # stored, to be shown
MAX_FORGOTTEN = 1_000
MAX_FILE_BYTES = 4 * 1024 * 1024  # of files that refold writes itself
_SAME_SHARE = 0.6  # of the shorter note's words: the notes count as the same


class Origin(Struct, frozen=True):
    """The messages that a note was made of: a session, its events, and their time."""

    session: str = ""
    seqs: tuple[int, ...] = ()
    at: float = 0.0


class NoteChange(Struct, frozen=True):
    """A note that was added or removed automatically, for the user to see."""

    sign: Literal["+", "-"]
    section: str
    text: str
    at: float = 0.0
    why: str = ""  # why it was removed: "replaced", "no room"


class NoteState(Struct, frozen=True):
    """`origins` by the normal form of a note. `seen`: the time of the last shown change."""

    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    changes: tuple[NoteChange, ...] = ()
    seen: float = 0.0


class ForgottenNote(Struct, frozen=True):
    """A forgotten note: the hashes of its words, its origin, and when it was forgotten."""

    stems: tuple[str, ...]
    at: float
    origin: Origin = Origin()


class ForgottenNotes(Struct, frozen=True):
    salt: str = ""
    gone: tuple[ForgottenNote, ...] = ()

    def plus(self, text: str, origin: Origin, timestamp: float) -> "ForgottenNotes":
        salt = self.salt or os.urandom(16).hex()
        gone = ForgottenNote(
            tuple(sorted(_hash_words(stems(text), salt))), timestamp, origin
        )
        return ForgottenNotes(salt, (*self.gone, gone)[-MAX_FORGOTTEN:])

    def holds(self, text: str, origin: Origin) -> bool:
        """Whether this note was forgotten, and no later message of the user repeats it."""
        mine = frozenset(_hash_words(stems(text), self.salt))
        return any(
            origin.at <= gone.at
            and (
                _comes_from_same_messages(origin, gone.origin)
                or overlap(mine, frozenset(gone.stems)) >= _SAME_SHARE
            )
            for gone in self.gone
        )


def read(file: Path, kind: type[T]) -> T:
    try:
        return _read(file, kind)
    except (BadInput, msgspec.DecodeError):
        return kind()


def read_forgotten(file: Path) -> ForgottenNotes:
    """The forgotten notes. Raises `BadInput` if the file is damaged."""
    try:
        return _read(file, ForgottenNotes)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{file} is damaged ({error}), so no note is saved or forgotten: restore it "
            "from a backup, or delete it; forgotten notes can then be learned again"
        ) from error


def write(file: Path, value: Struct) -> None:
    """Write the file. Raises `BadInput` if that fails."""
    memory_files.replace(
        file, msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    )


def _read(file: Path, kind: type[T]) -> T:
    text = memory_files.read_content(file, MAX_FILE_BYTES)
    return msgspec.json.decode(text, type=kind) if text else kind()


def _comes_from_same_messages(origin: Origin, other: Origin) -> bool:
    """Whether a note comes only from messages that a forgotten note was made of."""
    same = bool(origin.session) and origin.session == other.session
    return same and bool(origin.seqs) and set(origin.seqs) <= set(other.seqs)


def _hash_words(words: Iterable[str], salt: str) -> list[str]:
    return [sha256(f"{salt}:{word}".encode()).hexdigest()[:16] for word in words]
