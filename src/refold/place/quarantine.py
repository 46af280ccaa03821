"""Moves away what a command created under a guarded name, stores it, and restores it.

A sandboxed command cannot change a guarded path that existed before it. It can create a new one,
which would take effect for the next program that looks for it. So when the command has ended,
`quarantine_new` moves what is new: by descriptors, and only below the directories that the command could
write, so that a link in the way leads nowhere. A new repository stays if it has nothing that git
would run.

Moved files go to a directory of refold, each under a name of its own, with a note of its origin; a
file on another disk is renamed where it is. `Quarantine` lists, restores and deletes them; it
follows no link, either.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.place.gitconfig import runs_no_program
from refold.place.guarded_paths import GuardedPaths, pointed_to, start_of
from refold.place.openat import FOLDER, beneath
from refold.safe_open import made, unlinked
from refold.values.path_names import below

_NOTES = ".from"  # the directory of what is known of each


def quarantine_new(
    before: GuardedPaths,
    after: GuardedPaths,
    roots: Sequence[str],
    opened: Iterable[str],
    where: str,
) -> list[tuple[str, str]]:
    """Move what came up beneath `roots` to below `where`. Gives each path and its new one."""
    free = set(opened)
    moved = list[tuple[str, str]]()
    for path in sorted(_made(before, after, roots)):
        root = next((r for r in roots if path != r and below(path, r)), "")
        if root and path not in free:
            with suppress(OSError):  # gone, or a link is in the way: then it is not there
                moved.append((path, _take(path, root, where, before.links.get(path))))
    return moved


def _made(before: GuardedPaths, after: GuardedPaths, roots: Sequence[str]) -> Iterator[str]:
    for path, said in before.links.items():
        if after.links.get(path) != said:
            yield path
    for path in after.paths - before.paths:
        if directory := after.repositories.get(path):
            yield from _in_repository(path, directory)
        elif os.path.basename(path).lower() != ".git" or not _ours(path, roots):
            yield path


def _in_repository(path: str, directory: str) -> Iterator[str]:
    name = os.path.basename(path)
    if name == "hooks":
        with suppress(OSError):
            hooks = sorted(os.listdir(path))
            yield from (os.path.join(path, h) for h in hooks if not h.endswith(".sample"))
        if os.path.islink(path):
            yield path
    elif name == "commondir":
        if not _worktree(path, directory):
            yield path
    elif not runs_no_program(path):
        yield path


def _worktree(path: str, directory: str) -> bool:
    """Whether this directory of a linked worktree belongs to the repository that contains
    it.
    """
    above, name = os.path.split(os.path.dirname(directory))
    said = start_of(path)
    return (
        bool(said)
        and name == "worktrees"
        and os.path.realpath(os.path.join(directory, said)) == above
    )


def _ours(path: str, roots: Sequence[str]) -> bool:
    """Does a new `.git` lead to a place that was looked through?"""
    if os.path.islink(path):
        return False
    directory = pointed_to(path)
    return any(directory.startswith(root.rstrip("/") + "/") for root in roots)


def _take(path: str, root: str, where: str, link: str | None) -> str:
    top = os.open(root, FOLDER)
    try:
        folder, name = os.path.split(os.path.relpath(path, root))
        here = beneath(top, folder or ".", FOLDER)
    finally:
        os.close(top)
    try:
        goal = _put_away(here, name, os.path.dirname(path), where)
        if link is not None:
            os.symlink(link, name, dir_fd=here)
        return goal
    finally:
        os.close(here)


def _put_away(here: int, name: str, folder: str, where: str) -> str:
    with suppress(OSError):  # another disk, or none
        return move_to(name, here, os.path.join(folder, name), where)
    mark = os.urandom(4).hex()
    # There is always room beside it.
    os.rename(name, f"taken-{mark}", src_dir_fd=here, dst_dir_fd=here)
    return os.path.join(folder, f"taken-{mark}")


class QuarantineOrigin(Struct, frozen=True):
    """Where a thing was, and when it was taken from there."""

    path: str
    at: float


class QuarantinedItem(Struct, frozen=True):
    """`origin` is None where nothing was noted. `size` is in bytes, of all its files."""

    name: str
    size: int
    is_directory: bool
    origin: QuarantineOrigin | None


def move_to(name: str, here: int, path: str, where: str) -> str:
    """Move `name` in the directory `here`, which is `path`, to below `where`. Where it is then.

    Raises `OSError`: `where` may be on another disk.
    """
    notes = Path(where, _NOTES)
    os.makedirs(notes, mode=0o700, exist_ok=True)
    unlinked(Path(where), notes)
    called = f"{os.urandom(4).hex()}-{name}"
    os.rename(name, goal := os.path.join(where, called), src_dir_fd=here)
    with suppress(OSError):  # without it a person has to say where it is to go
        origin = QuarantineOrigin(os.fsencode(path).decode(errors="replace"), time.time())
        made(notes / f"{called}.json", msgspec.json.encode(origin))
    return goal


class Quarantine:
    """`directory` need not be there. Raises `BadInput` for what cannot be done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def things(self) -> list[QuarantinedItem]:
        """All of them, the last taken first."""
        try:
            unlinked(self._directory)
            names = [each for each in os.listdir(self._directory) if each != _NOTES]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"{self._directory} cannot be read: {error.strerror}") from error
        found = [self._kept(name) for name in sorted(names)]
        return sorted(found, key=lambda each: -(each.origin.at if each.origin else 0.0))

    def named(self, name: str) -> QuarantinedItem:
        """The one of this name, or the only one whose name begins so."""
        there, name = self.things(), name.rstrip("/")  # as a folder is listed
        found = [each for each in there if each.name == name] or [
            each for each in there if name and each.name.startswith(name)
        ]
        if len(found) != 1:
            what = f"more than one thing is called {name!r}" if found else f"no {name!r}"
            raise BadInput(f"{what} in quarantine: refold quarantine list shows all")
        return found[0]

    def restore(self, thing: QuarantinedItem, to: str = "") -> str:
        """Move it back, or `to` there, where nothing is yet. Gives where it is then."""
        goal = os.path.abspath(to) if to else thing.origin.path if thing.origin else ""
        if not goal:
            raise BadInput(f"the original place of {thing.name} is unknown: add --to PATH")
        folder, name = os.path.split(goal)
        try:
            here = _opened(folder)
        except OSError as error:
            raise BadInput(
                f"{folder} cannot be opened (links are not followed): {error.strerror}; "
                "say --to PATH"
            ) from error
        try:
            _move(self._directory / thing.name, name, here)
        except FileExistsError:
            raise BadInput(
                f"{goal} already exists: choose another place with --to PATH"
            ) from None
        except OSError as error:
            where = self._directory / thing.name
            raise BadInput(
                f"{where} cannot be moved to {goal}: {error.strerror}"
            ) from error
        finally:
            os.close(here)
        self._forget(thing)
        return goal

    def delete(self, thing: QuarantinedItem) -> None:
        """For good, with all that is in it."""
        place = self._directory / thing.name
        try:
            if thing.is_directory:
                shutil.rmtree(place)
            else:
                place.unlink()
        except OSError as error:
            raise BadInput(f"{place} cannot be deleted: {error.strerror}") from error
        self._forget(thing)

    def _kept(self, name: str) -> QuarantinedItem:
        place = self._directory / name
        try:
            is_directory = stat.S_ISDIR(place.lstat().st_mode)
        except OSError:
            is_directory = False
        return QuarantinedItem(name, sum(_sizes(place)), is_directory, self._origin(name))

    def _origin(self, name: str) -> QuarantineOrigin | None:
        try:
            said = (self._directory / _NOTES / f"{name}.json").read_bytes()
            return msgspec.json.decode(said, type=QuarantineOrigin)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _forget(self, thing: QuarantinedItem) -> None:
        with suppress(OSError):
            (self._directory / _NOTES / f"{thing.name}.json").unlink()


def _sizes(place: Path) -> Iterator[int]:
    with suppress(OSError):
        yield place.lstat().st_size if not place.is_dir() or place.is_symlink() else 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_size


def _opened(folder: str) -> int:
    top = os.open("/", FOLDER)
    try:
        return beneath(top, folder.lstrip("/") or ".", FOLDER)
    finally:
        os.close(top)


def _move(place: Path, name: str, here: int) -> None:
    """A directory is renamed where nothing is; a file gets its second name before it loses one."""
    about = place.lstat()
    if stat.S_ISDIR(about.st_mode):
        os.mkdir(
            name, 0o700, dir_fd=here
        )  # fails where anything is; an empty one is replaced
        try:
            os.rename(place, name, dst_dir_fd=here)
        except OSError:
            os.rmdir(name, dir_fd=here)
            raise
    else:
        os.link(place, name, dst_dir_fd=here, follow_symlinks=False)
        place.unlink()
