"""Undoes what a command did to guarded paths: what is new is moved away, what was there is put back.

The sandbox keeps a command from changing a guarded path, but a name that does not exist cannot be
mounted over, and what keeps a command could fail. So two states are compared
(`guard_state`), from before the command and from after it. A path that the user saw named in a
question is left alone. A new repository stays if it has nothing that git would run.

All work is done by descriptors, and only below directories that the command could write: a link in
the way leads nowhere.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.place.git_steps import runs_more
from refold.place.gitconfig import program_lines, program_lines_of, runs_no_program
from refold.place.guard_state import AllowedPaths, Fingerprint, GuardState
from refold.place.guarded_paths import gitdir_target, is_git_directory, read_start
from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.place.port import GuardChange
from refold.place.quarantine import move_to
from refold.safe_open import read_regular
from refold.values.path_names import below

_WORKTREE_CONFIG = re.compile(r"\[core\]\nworktree = ([\w./ +-]+)")
_MAX_SEARCHED = 200_000  # in the search for a file that was moved away


# Whether refold put this at a path, or allowed another command to. None: the path is missing.
IsKnown: TypeAlias = Callable[[str, Fingerprint | None], bool]


class UndoneChanges(NamedTuple):
    """`made` is what was undone, `accepted` the paths whose change was allowed.

    `by_others` are changes in paths that no command could write.
    """

    made: list[GuardChange]
    accepted: list[str]
    by_others: list[str]


class Reach(Struct, frozen=True):
    """Where commands can write: below `roots`, and never in `held` directories.

    `quarantine` is the directory for what is moved.
    """

    roots: Sequence[str]
    quarantine: str
    held: Set[str] = frozenset()


def undo_changes(
    before: GuardState,
    after: GuardState,
    reach: Reach,
    allowed: Sequence[AllowedPaths],
    is_known: IsKnown,
) -> UndoneChanges:
    """Move what is new or changed to quarantine, and restore what was there before."""
    held = {path for path in reach.held if _is_same_directory(path, before, after)}
    changes = _Changes(before, replace(reach, held=held), allowed, is_known)
    for path in _new_paths(before, after, reach.roots, changes):
        changes.move(path)
    different = sorted(
        path
        for path, old in before.prints.items()
        if (current := after.prints.get(path)) is None or not old.equals(current)
    )
    for path in different:
        changes.restore(path, current=after.prints.get(path))
    for path, current in after.steps.items():
        old = before.steps.get(path)
        if not _runs_more_when_continued(path, old, current):
            continue
        if old is not None and not old.equals(current):
            changes.restore(path, current)
        elif old is None and not is_known(path, current):
            changes.move(path)
    changes.move_renamed_files()
    return UndoneChanges(changes.made, changes.accepted, changes.by_others)


def _runs_more_when_continued(
    path: str, old: Fingerprint | None, current: Fingerprint
) -> bool:
    """Whether git would run more when it continues than the earlier file made it run."""
    if current.kind == "directory":
        return False
    if current.kind != "file" or current.content is None:
        return True  # a link, a pipe or too long
    return runs_more(path, (old and old.content) or b"", current.content)


def _is_same_directory(path: str, before: GuardState, after: GuardState) -> bool:
    old, current = before.prints.get(path), after.prints.get(path)
    if old is None or current is None or not old.kind == current.kind == "directory":
        return False
    return (old.device, old.inode) == (current.device, current.inode)


def _new_paths(
    before: GuardState, after: GuardState, roots: Sequence[str], changes: "_Changes"
) -> Iterator[str]:
    """The topmost new paths, without those that make no program run."""
    taken = ""
    for path in sorted(after.prints.keys() - before.prints.keys()):
        if (taken and below(path, taken)) or changes.has_named(path):
            continue
        if changes.is_known(path, after.prints[path]):
            continue
        if changes.is_by_another(path, after.prints[path]):
            continue
        if _is_new(path, before, after, roots):
            taken = path
            yield path


def _is_new(path: str, before: GuardState, after: GuardState, roots: Sequence[str]) -> bool:
    folder, name = os.path.split(path)
    above = before.prints.get(folder)
    if above is not None and above.kind == "directory" and above.names is None:
        return False  # there were too many to list
    target = _target_of(path, after)
    if target and not _is_new_target(path, target, before, after):
        return False
    directory = after.repositories.get(path)
    if directory is None:
        return name.lower() != ".git" or not _is_ours(path, roots)
    if name == "hooks":
        # What is in it has its own entries, unless that is too much or cannot be listed.
        return after.prints[path].kind == "link" or after.prints[path].names is None
    if name == "commondir":
        return not _is_worktree(path, directory)
    return not runs_no_program(path) and not _is_of_submodule(path, directory, roots)


def _is_of_submodule(config: str, directory: str, roots: Sequence[str]) -> bool:
    """Whether the settings that may run a program only say where the checkout is.

    The checkout must be in the workspace and refer back to this repository.
    """
    lines = program_lines(config) or []
    place = _WORKTREE_CONFIG.fullmatch(lines[0]) if len(lines) == 1 else None
    if place is None:
        return False
    top = os.path.realpath(os.path.join(directory, place[1]))
    inside = any(top != root and below(top, root) for root in roots)
    return inside and gitdir_target(f"{top}/.git") == os.path.realpath(directory)


def _target_of(path: str, state: GuardState) -> str:
    """The target of a git setting that `path` is or lies in; "" for none."""
    while path and path not in state.targets:
        path = path.rpartition("/")[0]
    return path


def _is_new_target(path: str, target: str, before: GuardState, after: GuardState) -> bool:
    """Whether git would run something new because of the path.

    What only a changed setting names does not count: the setting was put back, or the user
    allowed it. A checkout may bring what another checkout of the repository has.
    """
    current = after.prints[path]
    if path == target and current.kind == "directory" and current.names is not None:
        return False  # what is in it has its own entries
    file = after.targets[target]
    if not _is_unchanged(file, before, after):
        return False
    inside = path[len(target) :]
    return not any(
        (old := before.prints.get(inner + inside)) is not None
        and bool(old.digest)
        and (old.mode, old.digest) == (current.mode, current.digest)
        and current.links == 1
        and os.path.basename(inner) == os.path.basename(target)
        for inner, origin in before.targets.items()
        if origin == file
    )


def _is_unchanged(file: str, before: GuardState, after: GuardState) -> bool:
    """Whether this settings file, and those that include it, are unchanged.

    Those of the user are not in the workspace.
    """
    for _ in range(len(after.targets) + 1):
        old, current = before.prints.get(file), after.prints.get(file)
        if (old is None) != (current is None) or (
            old and current and not old.equals(current)
        ):
            return False
        if file not in after.targets:
            return True
        file = after.targets[file]
    return False


def _is_worktree(path: str, directory: str) -> bool:
    """Whether this directory of a linked worktree belongs to the repository that contains
    it.
    """
    above, name = os.path.split(os.path.dirname(directory))
    start = read_start(path)
    return (
        bool(start)
        and name == "worktrees"
        and os.path.realpath(os.path.join(directory, start)) == above
    )


def _is_ours(path: str, roots: Sequence[str]) -> bool:
    """Whether a new `.git` file leads to a whole repository in the workspace.

    An incomplete one could be completed later, under names that nothing guards.
    """
    if os.path.islink(path):
        return False
    directory = gitdir_target(path)
    inside = any(directory.startswith(root.rstrip("/") + "/") for root in roots)
    return inside and is_git_directory(directory)


class _Changes:
    """`made` is what was done, `accepted` what was allowed."""

    def __init__(
        self,
        before: GuardState,
        reach: Reach,
        allowed: Sequence[AllowedPaths],
        is_known: IsKnown,
    ) -> None:
        self.is_known, self._before, self._reach = is_known, before, reach
        self._named = [path for report in allowed for path in report.named]
        self._of_git = [path for report in allowed for path in report.of_git]
        self.made, self.accepted = list[GuardChange](), list[str]()
        self.by_others = list[str]()
        self._lost = dict[tuple[int, int], Fingerprint]()

    def has_named(self, path: str) -> bool:
        """Whether an allowed path is in this directory."""
        return any(path != name and below(name, path) for name in self._named)

    def move(self, path: str, fate: Literal["moved", "followed"] = "moved") -> None:
        """Move a new path to quarantine."""
        if self._is_allowed(path):
            self.accepted.append(path)
        elif root := self._root_of(path):
            with suppress(OSError):  # deleted, or a link is in the way
                self.made.append(
                    GuardChange(path, _move_away(path, root, self._reach.quarantine), fate)
                )

    def restore(self, path: str, current: Fingerprint | None) -> None:
        """Restore what was at `path`; what is there now is moved to quarantine."""
        root, old = self._root_of(path), self._before.fingerprint(path)
        if old is None:
            return
        if self._is_allowed(path):
            self.accepted.append(path)
            return
        if self.is_known(path, current) or self.is_by_another(path, current):
            return
        if old.kind == "file" and (
            current is None or (old.device, old.inode) != (current.device, current.inode)
        ):
            self._lost[old.device, old.inode] = old
        goal, back, is_full = "", False, False
        try:  # a link is in the way, or its directory is gone
            if current is not None:
                goal = _move_away(path, root, self._reach.quarantine, old.digest.hex())
            back = _put_back(path, root, old)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if goal or back or is_full:
            self.made.append(GuardChange(path, goal, "restored" if back else "lost"))

    def move_renamed_files(self) -> None:
        """Move files that were renamed away from guarded paths: a command could read them there."""
        for path in _paths_of(self._lost, self._reach.roots) if self._lost else ():
            # A restored file may have the same inode number.
            if path not in self._before.prints:
                self.move(path, "followed")

    def is_by_another(self, path: str, current: Fingerprint | None) -> bool:
        """Whether the user or an editor changed a path, in a directory that no command
        could write.

        Of a file with two names, a command may have changed the other.
        """
        old = self._before.fingerprint(path)
        files = [
            state
            for state in (old, current)
            if state is not None and state.kind != "directory"
        ]
        if any(state.links > 1 for state in files):
            return False
        if not any(path != state and below(path, state) for state in self._reach.held):
            return False
        self.by_others.append(path)
        return True

    def _root_of(self, path: str) -> str:
        return next((r for r in self._reach.roots if path != r and below(path, r)), "")

    def _is_allowed(self, path: str) -> bool:
        if any(below(path, root) for root in self._named):
            return True
        # Git removes a settings file only with its repository, and never a hook.
        return path in self._of_git and runs_no_more(self._before.fingerprint(path), path)


def runs_no_more(old: Fingerprint | None, config: str) -> bool:
    """Whether the settings name no program, or only those that they named before."""
    if runs_no_program(config):
        return True
    if old is None or old.content is None:
        return False
    lines = program_lines(config)
    return lines is not None and lines == program_lines_of(old.content)


def _paths_of(
    lost_files: Mapping[tuple[int, int], Fingerprint], roots: Sequence[str]
) -> Iterator[str]:
    """The present paths of these files. A new file may reuse the inode number of a deleted one."""
    numbers, left = {inode for _, inode in lost_files}, _MAX_SEARCHED
    for root in roots:
        for folder, _, _ in os.walk(root):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.inode() in numbers and _is_among(entry, lost_files):
                        yield entry.path
            if left < 0:
                return


def _is_among(
    entry: os.DirEntry[str], lost_files: Mapping[tuple[int, int], Fingerprint]
) -> bool:
    about = entry.stat(follow_symlinks=False)
    old = lost_files.get((about.st_dev, about.st_ino))
    if old is None or old.size != about.st_size:
        return False
    data, _ = read_regular(entry.path, about.st_size, follow=False)
    return not old.digest or sha256(data).digest() == old.digest


def _open_parent(path: str, root: str) -> int:
    """The directory of `path`, reached without a link."""
    top = os.open(root, FOLDER_FLAGS)
    try:
        return open_beneath(
            top, os.path.dirname(os.path.relpath(path, root)) or ".", FOLDER_FLAGS
        )
    finally:
        os.close(top)


def _move_away(path: str, root: str, folder_of_moved: str, replaced_by: str = "") -> str:
    folder, name = os.path.split(path)
    parent = _open_parent(path, root)
    try:
        with suppress(OSError):  # another disk, or no quarantine
            return move_to(name, parent, path, folder_of_moved, replaced_by)
        mark = os.urandom(4).hex()
        # A rename beside it always works.
        os.rename(name, f"taken-{mark}", src_dir_fd=parent, dst_dir_fd=parent)
        return os.path.join(folder, f"taken-{mark}")
    finally:
        os.close(parent)


def _put_back(path: str, root: str, original: Fingerprint) -> bool:
    """Restore what was at `path`. Return False if its content is unknown.

    The parent directory must exist.
    """
    name = os.path.basename(path)
    parent = _open_parent(path, root)
    try:
        if original.kind == "link":
            os.symlink(original.target, name, dir_fd=parent)
        elif original.kind == "directory":
            os.mkdir(name, 0o700, dir_fd=parent)
            _restore_owner_and_mode(name, parent, original)
        elif original.content is not None:
            _write_file(name, parent, original, original.content)
        else:
            return False
    finally:
        os.close(parent)
    return True


def _write_file(name: str, parent: int, original: Fingerprint, content: bytes) -> None:
    """Write under another name, then rename: a program may read the file at any time."""
    new = f".{name[:200]}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(new, flags, 0o600, dir_fd=parent), "wb") as file:
            file.write(content)
        _restore_owner_and_mode(new, parent, original)
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=parent)
        raise


def _restore_owner_and_mode(name: str, parent: int, original: Fingerprint) -> None:
    """Restore the owner and the mode."""
    about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (about.st_uid, about.st_gid) != original.owner:
        with suppress(PermissionError):
            os.chown(name, *original.owner, dir_fd=parent, follow_symlinks=False)
    os.chmod(name, stat.S_IMODE(original.mode), dir_fd=parent)
