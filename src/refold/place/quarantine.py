"""Stores what was moved out of workspaces: `Quarantine` lists, restores and deletes it.

`guard_changes` decides what is moved. Moved files go to a directory of refold, each under a name of
its own, with a note of its origin. No link is followed.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.safe_open import check_no_links, create_file, read_regular

_NOTES_DIRECTORY = ".from"  # the directory of notes on origins
_MAX_REPLACED_BYTES = 1024 * 1024  # of a file that refold restored


class QuarantineOrigin(Struct, frozen=True):
    """Where a thing was, and when it was moved.

    `replaced_by` is the sha256 of the file that was put in its place: the one that had been there
    before it.
    """

    path: str
    at: float
    replaced_by: str = ""


class QuarantinedItem(Struct, frozen=True):
    """`origin` is None where nothing was noted. `size` is in bytes, of all its files."""

    name: str
    size: int
    is_directory: bool
    origin: QuarantineOrigin | None


def move_to(
    name: str, descriptor: int, path: str, origin: str, replaced_by: str = ""
) -> str:
    """Move `name` of the open directory `descriptor` to below `origin`, and return its new path.

    `path` is where it was, for the note about it.
    Raises `OSError`: `origin` may be on another disk.
    """
    notes = Path(origin, _NOTES_DIRECTORY)
    os.makedirs(notes, mode=0o700, exist_ok=True)
    check_no_links(Path(origin), notes)
    called = f"{os.urandom(4).hex()}-{name}"
    os.rename(name, goal := os.path.join(origin, called), src_dir_fd=descriptor)
    with suppress(OSError):  # without it the person must name a path to restore
        path = os.fsencode(path).decode(errors="replace")
        note = QuarantineOrigin(path, time.time(), replaced_by)
        create_file(notes / f"{called}.json", msgspec.json.encode(note))
    return goal


class Quarantine:
    """The items in `directory`, which need not exist. Raises `BadInput` if an item cannot be used."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def items(self) -> list[QuarantinedItem]:
        """All items, the latest first."""
        try:
            check_no_links(self._directory)
            names = [
                entry for entry in os.listdir(self._directory) if entry != _NOTES_DIRECTORY
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"{self._directory} cannot be read: {error.strerror}") from error
        items = [self._item(name) for name in sorted(names)]
        return sorted(items, key=lambda each: -(each.origin.at if each.origin else 0.0))

    def find(self, name: str) -> QuarantinedItem:
        """The item of this name, or the only one whose name begins with it."""
        items, name = self.items(), name.rstrip("/")  # a folder is listed with a slash
        matches = [item for item in items if item.name == name] or [
            item for item in items if name and item.name.startswith(name)
        ]
        if len(matches) != 1:
            problem = (
                f"more than one thing is called {name!r}" if matches else f"no {name!r}"
            )
            raise BadInput(f"{problem} in quarantine: refold quarantine list shows all")
        return matches[0]

    def restore(self, item: QuarantinedItem, to: str = "") -> str:
        """Move it back, or to `to`, where nothing may exist. Return its new path."""
        goal = os.path.abspath(to) if to else item.origin.path if item.origin else ""
        if not goal:
            raise BadInput(f"the original place of {item.name} is unknown: add --to PATH")
        folder, name = os.path.split(goal)
        try:
            descriptor = _open_folder(folder)
        except OSError as error:
            raise BadInput(
                f"{folder} cannot be opened (links are not followed): {error.strerror}; "
                "say --to PATH"
            ) from error
        try:
            replaced_by = item.origin.replaced_by if item.origin and not to else ""
            _move_back(self._directory / item.name, name, descriptor, replaced_by)
        except FileExistsError:
            raise BadInput(
                f"{goal} already exists: choose another place with --to PATH"
            ) from None
        except OSError as error:
            source = self._directory / item.name
            raise BadInput(
                f"{source} cannot be moved to {goal}: {error.strerror}"
            ) from error
        finally:
            os.close(descriptor)
        self._forget(item)
        return goal

    def delete(self, item: QuarantinedItem) -> None:
        """Delete the item for good, with all that is in it."""
        place = self._directory / item.name
        try:
            if item.is_directory:
                shutil.rmtree(place)
            else:
                place.unlink()
        except OSError as error:
            raise BadInput(f"{place} cannot be deleted: {error.strerror}") from error
        self._forget(item)

    def _item(self, name: str) -> QuarantinedItem:
        place = self._directory / name
        try:
            is_directory = stat.S_ISDIR(place.lstat().st_mode)
        except OSError:
            is_directory = False
        return QuarantinedItem(name, sum(_sizes(place)), is_directory, self._origin(name))

    def _origin(self, name: str) -> QuarantineOrigin | None:
        try:
            note = (self._directory / _NOTES_DIRECTORY / f"{name}.json").read_bytes()
            return msgspec.json.decode(note, type=QuarantineOrigin)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _forget(self, item: QuarantinedItem) -> None:
        with suppress(OSError):
            (self._directory / _NOTES_DIRECTORY / f"{item.name}.json").unlink()


def _sizes(place: Path) -> Iterator[int]:
    with suppress(OSError):
        yield place.lstat().st_size if not place.is_dir() or place.is_symlink() else 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_size


def _open_folder(folder: str) -> int:
    top = os.open("/", FOLDER_FLAGS)
    try:
        return open_beneath(top, folder.lstrip("/") or ".", FOLDER_FLAGS)
    finally:
        os.close(top)


def _move_back(place: Path, name: str, descriptor: int, replaced_by: str) -> None:
    """Move `place` to `name`, where nothing may exist: a directory by renaming, a file by a link.

    A file may replace the one that refold put in its place, with the sha256 `replaced_by`.
    """
    about = place.lstat()
    if replaced_by and not stat.S_ISDIR(about.st_mode):
        with suppress(OSError):
            data, _ = read_regular(
                name, _MAX_REPLACED_BYTES, follow=False, directory=descriptor
            )
            if sha256(data).hexdigest() == replaced_by:
                os.replace(place, name, dst_dir_fd=descriptor)
                return
    if stat.S_ISDIR(about.st_mode):
        # Fails where anything is; an empty one is replaced.
        os.mkdir(name, 0o700, dir_fd=descriptor)
        try:
            os.rename(place, name, dst_dir_fd=descriptor)
        except OSError:
            os.rmdir(name, dir_fd=descriptor)
            raise
    else:
        os.link(place, name, dst_dir_fd=descriptor, follow_symlinks=False)
        place.unlink()
