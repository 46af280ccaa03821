"""The files that refold moved out of workspaces. `Quarantine` lists and restores them.

`guard_changes` decides what is moved. A moved file gets a new name in a directory of refold,
and a note about its origin. No link is followed.
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
_MAX_REPLACED_BYTES = 1024 * 1024  # the size of a file that refold restored


class QuarantineOrigin(Struct, frozen=True):
    """Where an item was before, and when it was moved.

    `replaced_by` is the sha256 of the earlier file that refold restored there; "" if it
    restored none.
    """

    path: str
    at: float
    replaced_by: str = ""


class QuarantinedItem(Struct, frozen=True):
    """A file or directory in quarantine. `size` is the sum of its files in bytes.

    `origin` is None if it was not noted or the note is damaged.
    """

    name: str
    size: int
    is_directory: bool
    origin: QuarantineOrigin | None


def move_to(
    name: str, descriptor: int, path: str, quarantine: str, replaced_by: str = ""
) -> str:
    """Move the entry `name` of the open directory `descriptor` to quarantine.

    Return its new path. `quarantine` is the directory. `path`, where the entry was, and
    `replaced_by` are noted, as in `QuarantineOrigin`. Raises `OSError`, for example if
    `quarantine` is on another disk.
    """
    notes = Path(quarantine, _NOTES_DIRECTORY)
    os.makedirs(notes, mode=0o700, exist_ok=True)
    check_no_links(Path(quarantine), notes)
    new_name = f"{os.urandom(4).hex()}-{name}"
    goal = os.path.join(quarantine, new_name)
    os.rename(name, goal, src_dir_fd=descriptor)
    # without the note, the user must name a path to restore the item
    with suppress(OSError):
        printable_path = os.fsencode(path).decode(errors="replace")
        note = QuarantineOrigin(printable_path, time.time(), replaced_by)
        create_file(notes / f"{new_name}.json", msgspec.json.encode(note))
    return goal


class Quarantine:
    """The items in `directory`, which need not exist.

    Methods raise `BadInput` if an item does not exist or cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def items(self) -> list[QuarantinedItem]:
        """Return all items, the one that was moved last first."""
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
        return sorted(items, key=_time_of_move, reverse=True)

    def find(self, name: str) -> QuarantinedItem:
        """Return the item with this name, or the only item whose name begins with `name`."""
        items = self.items()
        name = name.rstrip("/")  # a folder is listed with a slash
        matches = [item for item in items if item.name == name]
        if not matches and name:  # every name begins with ""
            matches = [item for item in items if item.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        problem = f"more than one thing is called {name!r}" if matches else f"no {name!r}"
        raise BadInput(f"{problem} in quarantine: refold quarantine list shows all")

    def restore(self, item: QuarantinedItem, to: str = "") -> str:
        """Move an item back to its origin, or to `to`. Return its new path.

        Nothing may exist there, except for the file that refold restored at the origin.
        """
        if to:
            goal, replaced_by = os.path.abspath(to), ""
        elif item.origin is not None and item.origin.path:
            goal, replaced_by = item.origin.path, item.origin.replaced_by
        else:
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
        """Delete the item permanently, with everything in it."""
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
        """Return a description of an item. It counts as a file if its status cannot be read."""
        place = self._directory / name
        try:
            is_directory = stat.S_ISDIR(place.lstat().st_mode)
        except OSError:
            is_directory = False
        return QuarantinedItem(name, sum(_sizes(place)), is_directory, self._origin(name))

    def _origin(self, name: str) -> QuarantineOrigin | None:
        """Return the note about an item's origin; None if it is missing or damaged."""
        try:
            note = (self._directory / _NOTES_DIRECTORY / f"{name}.json").read_bytes()
            return msgspec.json.decode(note, type=QuarantineOrigin)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _forget(self, item: QuarantinedItem) -> None:
        """Delete the note about an item's origin."""
        with suppress(OSError):
            (self._directory / _NOTES_DIRECTORY / f"{item.name}.json").unlink()


def _time_of_move(item: QuarantinedItem) -> float:
    return item.origin.at if item.origin else 0.0


def _sizes(place: Path) -> Iterator[int]:
    """Yield the size in bytes of a file, or of each file in a directory."""
    if place.is_symlink() or not place.is_dir():
        with suppress(OSError):
            yield place.lstat().st_size
        return
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_size


def _open_folder(folder: str) -> int:
    """Open a directory by its absolute path. Raises `OSError` if a link is on the path."""
    top = os.open("/", FOLDER_FLAGS)
    try:
        return open_beneath(top, folder.lstrip("/") or ".", FOLDER_FLAGS)
    finally:
        os.close(top)


def _move_back(place: Path, name: str, descriptor: int, replaced_by: str) -> None:
    """Move the quarantined `place` to the entry `name` of the open directory `descriptor`.

    Raises `OSError` if something exists there. Only a file whose sha256 is `replaced_by` is
    replaced: refold restored it when it moved `place` to quarantine.
    """
    is_directory = stat.S_ISDIR(place.lstat().st_mode)
    if replaced_by and not is_directory:
        with suppress(OSError):
            data, _ = read_regular(
                name, _MAX_REPLACED_BYTES, follow=False, directory=descriptor
            )
            if sha256(data).hexdigest() == replaced_by:
                os.replace(place, name, dst_dir_fd=descriptor)
                return
    if is_directory:
        # This fails if anything exists there. Renaming replaces the new empty directory.
        os.mkdir(name, 0o700, dir_fd=descriptor)
        try:
            os.rename(place, name, dst_dir_fd=descriptor)
        except OSError:
            os.rmdir(name, dir_fd=descriptor)
            raise
    else:
        # Unlike a renaming, a link never replaces a file.
        os.link(place, name, dst_dir_fd=descriptor, follow_symlinks=False)
        place.unlink()
