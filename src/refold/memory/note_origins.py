"""Stores from which messages each note was made, and which notes the user has forgotten.

Both are JSON files; the user edits only the Markdown file of notes. If the file of origins is
damaged, it counts as empty, because no note is lost by that. A damaged list of forgotten notes
is an error, because forgotten notes could be learned again. The list contains only hashes.
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
    """The messages from which a note was made: session, event numbers, time of the last one."""

    session: str = ""
    seqs: tuple[int, ...] = ()
    at: float = 0.0


class NoteChange(Struct, frozen=True):
    """A note that was added ("+") or removed ("-") automatically, to be shown to the user."""

    sign: Literal["+", "-"]
    section: str
    text: str
    at: float = 0.0
    why: str = ""  # why it was removed: "replaced", "no room"


class NoteState(Struct, frozen=True):
    """What is stored about the notes of one file, besides the notes.

    `origins` are the origins by normalized text of the note, `changes` the latest automatic
    changes. `seen` is the time of the newest change that the user has seen.
    """

    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    changes: tuple[NoteChange, ...] = ()
    seen: float = 0.0


class ForgottenNote(Struct, frozen=True):
    """A note that the user has removed for good: hashes of its words, its origin, and the time."""

    stems: tuple[str, ...]
    at: float
    origin: Origin = Origin()


class ForgottenNotes(Struct, frozen=True):
    """The notes `gone` that the user has removed for good, oldest first.

    `salt` is added to each word before it is hashed.
    """

    salt: str = ""
    gone: tuple[ForgottenNote, ...] = ()

    def plus(self, text: str, origin: Origin, timestamp: float) -> "ForgottenNotes":
        """Return the list with one more note; beyond `MAX_FORGOTTEN` notes, the oldest are
        dropped.
        """
        # Only salted hashes of the words are stored, so that the file does not show the note.
        salt = self.salt or os.urandom(16).hex()
        hashes = tuple(sorted(_hash_words(stems(text), salt)))
        note = ForgottenNote(hashes, timestamp, origin)
        return ForgottenNotes(salt, (*self.gone, note)[-MAX_FORGOTTEN:])

    def holds(self, text: str, origin: Origin) -> bool:
        """Whether this note, or a similar one, was forgotten and must not be saved again.

        If its messages are newer than the removal, the note may be saved.
        """
        hashed_stems = frozenset(_hash_words(stems(text), self.salt))
        for note in self.gone:
            if origin.at > note.at:
                continue  # the user has said it again since
            if _comes_from_same_messages(origin, note.origin):
                return True
            if overlap(hashed_stems, frozenset(note.stems)) >= _SAME_SHARE:
                return True
        return False


def read(file: Path, kind: type[T]) -> T:
    """Return the value in a JSON file; `kind()` if the file is missing or damaged."""
    try:
        return _read_strictly(file, kind)
    except (BadInput, msgspec.DecodeError):
        return kind()


def read_forgotten(file: Path) -> ForgottenNotes:
    """Return the forgotten notes. Raises `BadInput` if the file is damaged."""
    try:
        return _read_strictly(file, ForgottenNotes)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{file} is damaged ({error}), so no note is saved or forgotten: restore it "
            "from a backup, or delete it; forgotten notes can then be learned again"
        ) from error


def write(file: Path, value: Struct) -> None:
    """Write the value to a JSON file. Raises `BadInput` if that fails."""
    memory_files.replace(
        file, msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    )


def _read_strictly(file: Path, kind: type[T]) -> T:
    """Return the value in a JSON file; `kind()` if the file is missing.

    Raises `BadInput` if the file cannot be read, and `DecodeError` if it is damaged.
    """
    text = memory_files.read_content(file, MAX_FILE_BYTES)
    return msgspec.json.decode(text, type=kind) if text else kind()


def _comes_from_same_messages(origin: Origin, other: Origin) -> bool:
    """Whether all messages of `origin` are also messages of the forgotten note's origin
    `other`.
    """
    if not origin.session or origin.session != other.session:
        return False
    return bool(origin.seqs) and set(origin.seqs) <= set(other.seqs)


def _hash_words(words: Iterable[str], salt: str) -> list[str]:
    return [sha256(f"{salt}:{word}".encode()).hexdigest()[:16] for word in words]
