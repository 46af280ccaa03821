"""Stores the versions of a folder's texts for the model that the user has trusted.

The user trusts a folder, and later a command may change the files in it. So the content at the
time of trust is stored in the data directory. This version is sent to the model until the user
has seen the change. `instruction_files` reads the files, and `client.folder_trust` shows
changes.
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput, reason_of
from refold.place.private_files import file_lock, write
from refold.safe_open import read_regular
from refold.values.printable_names import escape_name
from refold.values.text import clean

_RECORD_DIRECTORY = "trusted_texts"
_MAX_RECORD_BYTES = 32 * 1024 * 1024  # of a record
_MAX_RECORDED_CHARS = 8 * 1024 * 1024  # recorded when a folder is trusted
_MAX_NOTICES = 8


class TextVersion(Struct, frozen=True):
    """A file that instructs the model.

    `trusted` is the version that the user trusts, or None. `now` is the present text. If
    `declined`, the user has seen `now` and declined it, so `trusted` stays in use.
    """

    path: str
    trusted: str | None
    now: str
    declined: bool = False


class _Record(Struct, frozen=True):
    """The stored record of a folder.

    `files` has the trusted texts, by their paths in the folder. `declined` has the hashes of
    the versions that the user declined.
    """

    folder: str
    files: dict[str, str]
    declined: dict[str, str] = {}


class TrustedVersions:
    """The trusted versions of the texts in the trusted folder `folder`.

    If no versions are recorded, the present files are trusted. `base` is the folder that has
    the files: `folder`, or the corresponding folder of a worktree. With `present`, the present
    content is sent to the model, and changes are only listed.
    """

    def __init__(
        self, data: Path, folder: str, base: str = "", *, present: bool = False
    ) -> None:
        self._folder, self._base = folder, base or folder
        self._file = _record_file(data, folder)
        self._present = present
        self._first_texts = dict[str, str]()  # by name, while there is no record
        self._changes = dict[str, TextVersion]()  # by real path
        self._record = self._read()

    @property
    def is_recorded(self) -> bool:
        return self._record is not None

    @property
    def changes(self) -> Sequence[TextVersion]:
        """The files, of those read so far, that differ from their trusted versions."""
        return tuple(self._changes.values())

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the files that have a trusted version."""
        files = self._record.files if self._record else ()
        return tuple(os.path.normpath(os.path.join(self._base, path)) for path in files)

    def text_to_send(self, real: str, now: str) -> str | None:
        """Return the version of a file to send to the model; None if no version is trusted.

        Return `now` if no versions are recorded yet. `real` is the real path of the file, and
        `now` its present text.
        """
        now = _normalize(now)
        name = self._recorded_name(real)
        if self._record is None:
            self._first_texts[name] = now
            return now
        trusted = self._record.files.get(name)
        if trusted != now:
            is_declined = self._record.declined.get(name) == _hash(now)
            self._changes[real] = TextVersion(real, trusted, now, is_declined)
        else:
            self._changes.pop(real, None)
        return now if self._present else trusted

    def notices(self, directory: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """Return a sentence about each changed file, with its path relative to `directory`.

        The paths in `but` are left out.
        """
        changes = (change for change in self.changes if change.path not in but)
        lines = [self._notice(change, directory) for change in changes]
        more = len(lines) - _MAX_NOTICES
        if more > 1:  # a sentence about a single file would be no shorter than its notice
            last_line = f"{more} more files of instructions have changed: `refold trust add` shows them"
            return (*lines[:_MAX_NOTICES], last_line)
        return tuple(lines)

    def record_first(self) -> None:
        """Record the files that were read as trusted.

        Do nothing if there is a record already.
        """
        if self._record is not None:
            return
        chars_left = _MAX_RECORDED_CHARS
        files = dict[str, str]()
        for name, text in self._first_texts.items():
            if len(text) <= chars_left:
                files[name] = text
                chars_left -= len(text)
        self._write(lambda _: _Record(self._folder, files))

    def accept(self, changes: Sequence[TextVersion]) -> None:
        """Record the changed files as trusted, because the user has seen the changes."""
        new = {self._name(item.path): _normalize(item.now) for item in changes}

        def change(record: _Record) -> _Record:
            declined = {n: hash_ for n, hash_ in record.declined.items() if n not in new}
            return _Record(self._folder, record.files | new, declined)

        self._write(change)
        for item in changes:
            self._changes.pop(item.path, None)

    def decline(self, changes: Sequence[TextVersion]) -> None:
        """Record that the user has seen these changes and declined them."""
        hashes = {self._name(change.path): _hash(change.now) for change in changes}
        self._write(lambda r: _Record(self._folder, r.files, r.declined | hashes))

    def _recorded_name(self, real: str) -> str:
        """Return the path of a file relative to the trusted folder, as the record has it.

        If the record has no file at this path, return the path relative to the base.
        """
        name = self._name(real)
        if self._record is not None and name in self._record.files:
            return name
        return clean(os.path.relpath(real, self._base))

    def _name(self, real: str) -> str:
        return clean(os.path.relpath(real, self._folder))

    def _notice(self, change: TextVersion, directory: str) -> str:
        """Return a sentence about a changed file: which version is used, and how to see it."""
        called = escape_name(os.path.relpath(change.path, directory))
        since = "is new" if change.trusted is None else "changed"
        if self._present:
            return (
                f"{called} {since} since you trusted this folder; --trust uses it as it is"
            )
        if change.trusted is None:
            return (
                f"{called} is left out: it is new since you trusted this folder: "
                "`refold trust add` shows it"
            )
        return (
            f"{called} changed since you trusted it, so the version that you trusted is "
            "used: `refold trust add` shows the change"
        )

    def _read(self) -> _Record | None:
        """Return the stored record; None if there is none.

        Raises `BadInput` if it is unreadable.
        """
        try:
            data, size = read_regular(self._file, _MAX_RECORD_BYTES, follow=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{self._file} cannot be read: {reason_of(error)}") from error
        try:
            if size > _MAX_RECORD_BYTES:
                raise ValueError(f"it is larger than {_MAX_RECORD_BYTES:,} bytes")
            return msgspec.json.decode(data, type=_Record)
        except (msgspec.DecodeError, ValueError) as error:
            raise BadInput(
                f"{self._file} is damaged ({error}), so it is not known which instructions you "
                f"trust: look at those of {self._folder}, and delete the file"
            ) from error

    def _write(self, change: Callable[[_Record], _Record]) -> None:
        """Apply `change` to the stored record, and write the result.

        The record is read again first, because another process may have changed the record.
        """
        try:
            with file_lock(self._file):
                record = change(self._read() or _Record(self._folder, {}))
                write(self._file, msgspec.json.encode(record).decode())
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {reason_of(error)}") from error
        self._record = record


def forget_versions(data: Path, folder: str) -> None:
    """Remove the record of a folder that the user no longer trusts."""
    with suppress(OSError):
        _record_file(data, folder).unlink(missing_ok=True)


def _normalize(text: str) -> str:
    """Return `text` without differences of line ends and byte order marks."""
    return clean(text.removeprefix("\ufeff").replace("\r\n", "\n"))


def _record_file(data: Path, folder: str) -> Path:
    name = sha256(os.fsencode(folder)).hexdigest()[:32]
    return data / _RECORD_DIRECTORY / f"{name}.json"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
