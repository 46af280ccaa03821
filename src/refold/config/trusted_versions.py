"""The versions of a folder's instructions that the user has trusted.

Trust covers a folder, and a command may change the files in it. So the bytes that were sent first
after the folder was trusted are kept in the data directory, and they are sent until the user has
seen the change. `prompts.instructions` reads the files; `client.folder_trust` shows changes.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput, said_by
from refold.place.private_files import file_lock, write
from refold.safe_open import read_regular

_DIRECTORY = "trusted_texts"
_LARGEST = 4 * 1024 * 1024  # bytes of a record


class TextVersion(Struct, frozen=True):
    """A file that instructs the model. `trusted` is what the user knows of it, None: nothing.

    `declined`: the user has seen the change, and keeps the trusted version.
    """

    path: str
    trusted: str | None
    now: str
    declined: bool = False


class _Record(Struct, frozen=True):
    """Texts by the real paths of their files; hashes of changes that the user declined."""

    folder: str
    files: dict[str, str]
    declined: dict[str, str] = {}


class TrustedVersions:
    """Of the trusted folder `folder`. Where nothing was recorded, what is read is trusted."""

    def __init__(self, data: Path, folder: str) -> None:
        self._folder, self._file = folder, _file(data, folder)
        self._first = dict[str, str]()
        self._changes = dict[str, TextVersion]()
        self._record = self._read()

    @property
    def changes(self) -> Sequence[TextVersion]:
        """The files read by now that are not as the user knows them."""
        return tuple(self._changes.values())

    def trusted(self, real: str, now: str) -> str | None:
        """The text to send instead of `now`; None: the user has not seen any."""
        if self._record is None:
            self._first[real] = now
            return now
        known = self._record.files.get(real)
        if known != now:
            declined = self._record.declined.get(real) == _hash(now)
            self._changes[real] = TextVersion(real, known, now, declined)
        return known

    def record_first(self) -> None:
        """After the first reading: what was read is what the user trusts."""
        if self._record is None and self._first:
            self._write(_Record(self._folder, self._first))

    def accept(self, changes: Sequence[TextVersion]) -> None:
        """The user has seen these changes, and wants them."""
        record = self._record or _Record(self._folder, {})
        new = {each.path: each.now for each in changes}
        left = {path: h for path, h in record.declined.items() if path not in new}
        self._write(_Record(self._folder, record.files | new, left))

    def decline(self, changes: Sequence[TextVersion]) -> None:
        """The user has seen these changes, and does not want them."""
        record = self._record or _Record(self._folder, {})
        seen = {each.path: _hash(each.now) for each in changes}
        self._write(_Record(self._folder, record.files, record.declined | seen))

    def _read(self) -> _Record | None:
        try:
            data, size = read_regular(self._file, _LARGEST, follow=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{self._file} cannot be read: {said_by(error)}") from error
        try:
            if size > _LARGEST:
                raise ValueError(f"it is larger than {_LARGEST:,} bytes")
            return msgspec.json.decode(data, type=_Record)
        except (msgspec.DecodeError, ValueError) as error:
            raise BadInput(
                f"{self._file} is damaged ({error}), so it is not known which instructions you "
                f"trust: look at those of {self._folder}, and delete the file"
            ) from error

    def _write(self, record: _Record) -> None:
        try:
            with file_lock(self._file):
                write(self._file, msgspec.json.encode(record).decode())
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {said_by(error)}") from error
        self._record = record


def forget_versions(data: Path, folder: str) -> None:
    """The folder is not trusted any more: once it is again, what is there then counts."""
    with suppress(OSError):
        _file(data, folder).unlink(missing_ok=True)


def _file(data: Path, folder: str) -> Path:
    name = sha256(os.fsencode(folder)).hexdigest()[:32]
    return data / _DIRECTORY / f"{name}.json"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
