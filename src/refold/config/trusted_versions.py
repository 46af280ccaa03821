"""The versions of a folder's instructions that the user has trusted.

Trust covers a folder, and a command may change the files in it. So the bytes that were there when
the folder was trusted are stored in the data directory, and they are sent until the user
has seen the change. `instruction_files` reads the files; `client.folder_trust` shows
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
    """A file that instructs the model. `trusted` is the version the user knows, or None.

    `declined`: the user has seen the change, and keeps the trusted version.
    """

    path: str
    trusted: str | None
    now: str
    declined: bool = False


class _Record(Struct, frozen=True):
    """The stored record: texts by their paths in the folder, and hashes of changes that the
    user declined.
    """

    folder: str
    files: dict[str, str]
    declined: dict[str, str] = {}


class TrustedVersions:
    """The versions of the trusted folder `folder`.

    If none are recorded, the files are trusted as they are read. `base` is the folder with
    the files if it differs: the same folder in a worktree. With `present`, files count as
    they are, and changes are only listed.
    """

    def __init__(
        self, data: Path, folder: str, base: str = "", *, present: bool = False
    ) -> None:
        self._folder, self._file = folder, _record_file(data, folder)
        self._base, self._present = base or folder, present
        self._first = dict[str, str]()
        self._changes = dict[str, TextVersion]()
        self._record = self._read()

    @property
    def is_recorded(self) -> bool:
        return self._record is not None

    @property
    def changes(self) -> Sequence[TextVersion]:
        """The files already read that differ from the versions that the user knows."""
        return tuple(self._changes.values())

    @property
    def paths(self) -> Sequence[str]:
        """The files with a trusted version."""
        files = self._record.files if self._record else ()
        return tuple(os.path.normpath(os.path.join(self._base, path)) for path in files)

    def text_to_send(self, real: str, now: str) -> str | None:
        """The version to send instead of the text `now`; None if the user has trusted none."""
        now = _normalize(now)
        own = clean(os.path.relpath(real, self._folder))
        recorded = self._record is not None and own in self._record.files
        name = own if recorded else clean(os.path.relpath(real, self._base))
        if self._record is None:
            self._first[name] = now
            return now
        known = self._record.files.get(name)
        if known != now:
            declined = self._record.declined.get(name) == _hash(now)
            self._changes[real] = TextVersion(real, known, now, declined)
        else:
            self._changes.pop(real, None)
        return now if self._present else known

    def notices(self, directory: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """A sentence about each change, with the path relative to `directory`.

        Changes of the paths in `but` are left out.
        """
        news = (change for change in self.changes if change.path not in but)
        lines = [self._notice(change, directory) for change in news]
        more = len(lines) - _MAX_NOTICES
        if more > 1:
            rest = f"{more} more files of instructions have changed: `refold trust add` shows them"
            return (*lines[:_MAX_NOTICES], rest)
        return tuple(lines)

    def record_first(self) -> None:
        """Record the files as trusted, after they were read for the first time."""
        if self._record is None:
            chars_left, files = _MAX_RECORDED_CHARS, dict[str, str]()
            for name, text in self._first.items():
                if len(text) <= chars_left:
                    files[name] = text
                    chars_left -= len(text)
            self._write(lambda _: _Record(self._folder, files))

    def accept(self, changes: Sequence[TextVersion]) -> None:
        """Trust these changes, which the user has seen."""
        new = {self._name(item.path): _normalize(item.now) for item in changes}

        def change(record: _Record) -> _Record:
            left = {name: h for name, h in record.declined.items() if name not in new}
            return _Record(self._folder, record.files | new, left)

        self._write(change)
        for item in changes:
            self._changes.pop(item.path, None)

    def decline(self, changes: Sequence[TextVersion]) -> None:
        """Record that the user has seen these changes and declined them."""
        hashes = {self._name(change.path): _hash(change.now) for change in changes}
        self._write(lambda r: _Record(self._folder, r.files, r.declined | hashes))

    def _name(self, real: str) -> str:
        return clean(os.path.relpath(real, self._folder))

    def _notice(self, change: TextVersion, directory: str) -> str:
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
        """Change the current record, which another process may have written meanwhile."""
        try:
            with file_lock(self._file):
                record = change(self._read() or _Record(self._folder, {}))
                write(self._file, msgspec.json.encode(record).decode())
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {reason_of(error)}") from error
        self._record = record


def forget_versions(data: Path, folder: str) -> None:
    """Remove the record of a distrusted folder. If trusted again, its files then count."""
    with suppress(OSError):
        _record_file(data, folder).unlink(missing_ok=True)


def _normalize(text: str) -> str:
    """The text without differences that come from how a file is opened."""
    return clean(text.removeprefix("\ufeff").replace("\r\n", "\n"))


def _record_file(data: Path, folder: str) -> Path:
    name = sha256(os.fsencode(folder)).hexdigest()[:32]
    return data / _RECORD_DIRECTORY / f"{name}.json"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
