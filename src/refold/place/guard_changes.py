"""Undoes changes of guarded paths by commands: moves new files away, restores old ones.

The sandbox keeps a command from changing a guarded path. But a path that does not exist yet
cannot be mounted over, and the sandbox could fail. So the states before and after a command are
compared (`guard_state`). A path that the user saw in a question and allowed is left alone. A
new repository is left if it has nothing that git would run.

All work is done by descriptors, and only below directories that the command could write to, so
a link in a path cannot lead elsewhere.
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

from refold.place.bare_repository import is_git_directory
from refold.place.git_steps import runs_more
from refold.place.gitconfig import program_lines, program_lines_of, runs_no_program
from refold.place.guard_state import AllowedPaths, Fingerprint, GuardState
from refold.place.guarded_paths import gitdir_target, read_start
from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.place.port import GuardChange
from refold.place.quarantine import move_to
from refold.safe_open import read_regular
from refold.values.path_names import below

# The one line that `git submodule` writes and that is not known to be harmless.
_WORKTREE_CONFIG = re.compile(r"\[core\]\nworktree = ([\w./ +-]+)")
_MAX_SEARCHED = 200_000  # files examined in the search for one that was moved away


# Whether refold put this fingerprint at a path, or allowed another command to. None: the
# path is missing.
IsKnown: TypeAlias = Callable[[str, Fingerprint | None], bool]


class UndoneChanges(NamedTuple):
    """The result of `undo_changes`.

    `made` are the changes that were undone, and `accepted` the paths whose change was allowed.
    `by_others` are changed paths to which no command could write.
    """

    made: list[GuardChange]
    accepted: list[str]
    by_others: list[str]


class Reach(Struct, frozen=True):
    """What commands can write to: all below `roots`, except below a directory in `held`.

    `quarantine` is the directory to which files are moved.
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
    """Undo the changes of guarded paths between the states `before` and `after`.

    New and changed files are moved to quarantine, and the earlier files are restored. `allowed`
    are the paths that commands may change. `is_known` says whether refold itself brought a path
    to its present state.
    """
    held = {path for path in reach.held if _is_same_directory(path, before, after)}
    changes = _Changes(before, replace(reach, held=held), allowed, is_known)
    for path in _new_paths(before, after, reach.roots, changes):
        changes.move(path)
    for path, old in sorted(before.prints.items()):
        current = after.prints.get(path)
        if current is None or not old.equals(current):
            changes.restore(path, current)
    for path, current in after.steps.items():
        old = before.steps.get(path)
        if not _runs_more_when_continued(path, old, current):
            continue
        if old is None:
            if not is_known(path, current):
                changes.move(path)
        elif not old.equals(current):
            changes.restore(path, current)
    changes.move_renamed_files()
    return UndoneChanges(changes.made, changes.accepted, changes.by_others)


def _runs_more_when_continued(
    path: str, old: Fingerprint | None, current: Fingerprint
) -> bool:
    """Whether git would run more with the step file `current` than with `old`.

    `old` is None if the file is new.
    """
    if current.kind == "directory":
        return False
    if current.kind != "file" or current.content is None:
        return True  # a link, a pipe or too long
    old_content = b""
    if old is not None and old.content is not None:
        old_content = old.content
    return runs_more(path, old_content, current.content)


def _is_same_directory(path: str, before: GuardState, after: GuardState) -> bool:
    """Whether `path` was a directory before, and is the same directory after."""
    old, current = before.prints.get(path), after.prints.get(path)
    if old is None or old.kind != "directory":
        return False
    if current is None or current.kind != "directory":
        return False
    return (old.device, old.inode) == (current.device, current.inode)


def _new_paths(
    before: GuardState, after: GuardState, roots: Sequence[str], changes: "_Changes"
) -> Iterator[str]:
    """Yield the new paths that may make a program run, without paths below a yielded one.

    Paths that no command can have written are added to `changes.by_others`.
    """
    last_yielded = ""
    for path in sorted(after.prints.keys() - before.prints.keys()):
        if last_yielded and below(path, last_yielded):
            continue
        if changes.has_allowed_below(path) or changes.is_known(path, after.prints[path]):
            continue
        if changes.is_by_another(path, after.prints[path]):
            changes.by_others.append(path)
        elif _may_run(path, before, after, roots):
            last_yielded = path
            yield path


def _may_run(
    path: str, before: GuardState, after: GuardState, roots: Sequence[str]
) -> bool:
    """Whether the new path `path` may make git or another program run something new."""
    folder, name = os.path.split(path)
    parent = before.prints.get(folder)
    if parent is not None and parent.kind == "directory" and parent.names is None:
        return False  # it had too many entries to list, so the path may be old
    target = _target_of(path, after)
    if target and not _is_new_target(path, target, before, after):
        return False
    directory = after.repositories.get(path)
    if directory is None:  # the path is not in a git directory
        return name.lower() != ".git" or not _is_ours(path, roots)
    if name == "hooks":
        # The directory's content has its own entries, unless it is too much or cannot be
        # listed.
        return after.prints[path].kind == "link" or after.prints[path].names is None
    if name == "commondir":
        return not _is_worktree(path, directory)
    return not (runs_no_program(path) or _is_of_submodule(path, directory, roots))


def _is_of_submodule(config: str, directory: str, roots: Sequence[str]) -> bool:
    """Whether the settings file `config` names no program, only a submodule's checkout.

    `directory` is the submodule's git directory. The checkout must be in the workspace and
    refer back to it.
    """
    lines = program_lines(config) or []
    if len(lines) != 1:
        return False
    match = _WORKTREE_CONFIG.fullmatch(lines[0])
    if match is None:
        return False
    top = os.path.realpath(os.path.join(directory, match[1]))
    is_in_workspace = any(top != root and below(top, root) for root in roots)
    return is_in_workspace and gitdir_target(f"{top}/.git") == os.path.realpath(directory)


def _target_of(path: str, state: GuardState) -> str:
    """Return the nearest path, `path` or above it, that a git setting names; "" if none."""
    while path and path not in state.targets:
        path = path.rpartition("/")[0]
    return path


def _is_new_target(path: str, target: str, before: GuardState, after: GuardState) -> bool:
    """Whether `path`, which is at or below `target`, makes git run something new.

    `target` is named by a git setting. The answer is False if that setting has changed: the
    change was undone, or the user allowed it. It is also False if a new checkout has a copy of
    a file that the same setting named in an earlier checkout.
    """
    current = after.prints[path]
    if path == target and current.kind == "directory" and current.names is not None:
        return False  # the directory's content has its own entries
    file = after.targets[target]  # the settings file that names it
    if not _is_unchanged(file, before, after):
        return False
    if current.links != 1:  # a command could write to it by its other name
        return True
    path_in_target = path[len(target) :]
    name = os.path.basename(target)
    for earlier_target, origin in before.targets.items():
        if origin != file or os.path.basename(earlier_target) != name:
            continue
        old = before.prints.get(earlier_target + path_in_target)
        if old is None or not old.digest:
            continue
        if (old.mode, old.digest) == (current.mode, current.digest):
            return False
    return True


def _is_unchanged(file: str, before: GuardState, after: GuardState) -> bool:
    """Whether the settings file `file`, and all files that include it, are unchanged.

    The user's own settings files are not compared, because they are outside the workspace.
    """
    for _ in range(len(after.targets) + 1):  # the files may include each other
        old, current = before.prints.get(file), after.prints.get(file)
        if (old is None) != (current is None):
            return False
        if old is not None and current is not None and not old.equals(current):
            return False
        if file not in after.targets:  # no file includes it
            return True
        file = after.targets[file]  # the file that includes it
    return False  # the files include each other in a circle


def _is_worktree(path: str, directory: str) -> bool:
    """Whether the `commondir` file `path` is the usual one of a linked worktree.

    That is so if `directory` is REPOSITORY/worktrees/NAME and the file names REPOSITORY.
    """
    repository, name = os.path.split(os.path.dirname(directory))
    common_directory = read_start(path)
    if name != "worktrees" or not common_directory:
        return False
    return os.path.realpath(os.path.join(directory, common_directory)) == repository


def _is_ours(path: str, roots: Sequence[str]) -> bool:
    """Whether a new `.git` file refers to a complete repository in the workspace.

    An incomplete repository could be completed later, at paths that are not guarded yet.
    """
    if os.path.islink(path):
        return False
    directory = gitdir_target(path)
    # the roots themselves do not count
    is_in_workspace = any(directory.startswith(root.rstrip("/") + "/") for root in roots)
    return is_in_workspace and is_git_directory(directory)


class _Changes:
    """Undoes changes one by one, and records them as in `UndoneChanges`."""

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
        # Guarded files that are no longer at their paths, by device and inode number.
        self._lost = dict[tuple[int, int], Fingerprint]()

    def has_allowed_below(self, path: str) -> bool:
        """Whether a path that the user allowed is below the directory `path`."""
        return any(path != name and below(name, path) for name in self._named)

    def move(self, path: str, fate: Literal["moved", "followed"] = "moved") -> None:
        """Move a new path to quarantine, unless its change is allowed.

        `fate` is as in `GuardChange`.
        """
        if self._is_allowed(path):
            self.accepted.append(path)
        elif root := self._root_of(path):
            with suppress(OSError):  # deleted, or a link is on the path
                new_path = _move_away(path, root, self._reach.quarantine)
                self.made.append(GuardChange(path, new_path, fate))

    def restore(self, path: str, current: Fingerprint | None) -> None:
        """Restore what was at `path`, after moving what is there now to quarantine.

        `current` is the present state of `path`; None if nothing exists there. Nothing is
        restored if the change was allowed, if refold made it, or if no command can have made
        it.
        """
        old = self._before.fingerprint(path)
        if old is None:
            return
        if self._is_allowed(path):
            self.accepted.append(path)
            return
        if self.is_known(path, current):
            return
        if self.is_by_another(path, current):
            self.by_others.append(path)
            return
        if old.kind == "file" and not _is_same_file(old, current):
            self._lost[old.device, old.inode] = old
        root = self._root_of(path)
        moved_to = ""
        is_restored = is_disk_full = False
        try:
            if current is not None:
                moved_to = _move_away(
                    path, root, self._reach.quarantine, replaced_by=old.digest.hex()
                )
            is_restored = _put_back(path, root, old)
        except OSError as error:  # a link is on the path, or its directory was deleted
            is_disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if moved_to or is_restored or is_disk_full:
            fate = "restored" if is_restored else "lost"
            self.made.append(GuardChange(path, moved_to, fate))

    def move_renamed_files(self) -> None:
        """Move to quarantine the guarded files that a command renamed.

        A command could still read them at their new paths.
        """
        if not self._lost:
            return
        for path in _paths_of(self._lost, self._reach.roots):
            # A restored file may have the same inode number.
            if path not in self._before.prints:
                self.move(path, "followed")

    def is_by_another(self, path: str, current: Fingerprint | None) -> bool:
        """Whether no command can have changed `path`, because it is in a held directory.

        The answer is False for a file with two names: a command may have used the other name.
        """
        old = self._before.fingerprint(path)
        for state in (old, current):
            if state is not None and state.kind != "directory" and state.links > 1:
                return False
        return any(path != held and below(path, held) for held in self._reach.held)

    def _root_of(self, path: str) -> str:
        """Return the writable root that contains `path`; "" if none does."""
        return next((r for r in self._reach.roots if path != r and below(path, r)), "")

    def _is_allowed(self, path: str) -> bool:
        """Whether a change stays, because it was allowed, or because git may make it."""
        if any(below(path, root) for root in self._named):
            return True
        # A removal does not count: git removes a settings file only with its repository.
        return path in self._of_git and runs_no_more(self._before.fingerprint(path), path)


def _is_same_file(old: Fingerprint, current: Fingerprint | None) -> bool:
    """Whether the path still leads to the same file, even if its content has changed."""
    if current is None:
        return False
    return (old.device, old.inode) == (current.device, current.inode)


def runs_no_more(old: Fingerprint | None, config: str) -> bool:
    """Whether the settings file `config` names only programs that it named in `old`."""
    if runs_no_program(config):
        return True
    if old is None or old.content is None:
        return False
    lines = program_lines(config)
    return lines is not None and lines == program_lines_of(old.content)


def _paths_of(
    lost_files: Mapping[tuple[int, int], Fingerprint], roots: Sequence[str]
) -> Iterator[str]:
    """Yield the present paths of files that are no longer at their guarded paths.

    The files are found by their device and inode numbers, among the first `_MAX_SEARCHED` files
    of `roots`.
    """
    # An entry has its inode at hand. Only files with one of these inodes are looked at.
    inodes = {inode for _, inode in lost_files}
    count = 0
    for root in roots:
        for folder, _, _ in os.walk(root):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if entry.inode() in inodes and _is_among(entry, lost_files):
                        yield entry.path
            if count > _MAX_SEARCHED:
                return


def _is_among(
    entry: os.DirEntry[str], lost_files: Mapping[tuple[int, int], Fingerprint]
) -> bool:
    """Whether a directory entry is one of the lost files.

    The content is compared, too, because a new file may have the inode number of a deleted one.
    """
    status = entry.stat(follow_symlinks=False)
    old = lost_files.get((status.st_dev, status.st_ino))
    if old is None or old.size != status.st_size:
        return False
    data, _ = read_regular(entry.path, status.st_size, follow=False)
    return not old.digest or sha256(data).digest() == old.digest


def _open_parent(path: str, root: str) -> int:
    """Open the directory that contains `path`, without following links below `root`."""
    top = os.open(root, FOLDER_FLAGS)
    parent = os.path.dirname(os.path.relpath(path, root)) or "."
    try:
        return open_beneath(top, parent, FOLDER_FLAGS)
    finally:
        os.close(top)


def _move_away(path: str, root: str, quarantine: str, replaced_by: str = "") -> str:
    """Move a file to quarantine; if that fails, rename it where it is. Return its new path.

    `replaced_by` is the hash of the file that will be restored at `path`.
    """
    folder, name = os.path.split(path)
    parent = _open_parent(path, root)
    try:
        with suppress(OSError):  # on another disk, or the quarantine does not exist
            return move_to(name, parent, path, quarantine, replaced_by)
        # Renaming within the same directory always works.
        new_name = f"taken-{os.urandom(4).hex()}"
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=parent)
        return os.path.join(folder, new_name)
    finally:
        os.close(parent)


def _put_back(path: str, root: str, original: Fingerprint) -> bool:
    """Create again what was at `path`. Return False if its content is not stored.

    The directory that contains it must exist. Raises `OSError`.
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
    """Write `content` to a file completely or not at all, with its earlier owner and mode.

    `parent` is the descriptor of its directory. Raises `OSError`.
    """
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
    """Give the file `name` the mode and, if possible, the owner of `original`."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (status.st_uid, status.st_gid) != original.owner:
        with suppress(PermissionError):
            os.chown(name, *original.owner, dir_fd=parent, follow_symlinks=False)
    os.chmod(name, stat.S_IMODE(original.mode), dir_fd=parent)
