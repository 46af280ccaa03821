"""Finds guarded paths in the workspace: files that must not change while a command writes.

`values.path_names` has the names: files that hold secrets, or that decide what runs. A directory
that has not changed since the last search is not searched again. Installed packages are left out,
unless a link leads to them. The first search looks through the nearest of very many directories;
later ones leave out the same, and look through all that is new. The sandbox protects what is
found; `guard_changes` moves away what a command has created under such a name.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from refold.place.git_steps import STEP_FILES, step_files
from refold.place.git_targets import GitTargets, Repository
from refold.safe_open import read_regular
from refold.values.path_names import KEYS_REASON, below, guard_reason, relative_name

_MAX_DIRECTORIES = 5000  # that the first search looks through
_LIST_MODE = stat.S_IRUSR | stat.S_IXUSR
_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time
_PACKAGES = {"node_modules", "site-packages", "__pycache__", ".tox", ".nox"}
_PACKAGE_FOLDERS = _PACKAGES | {".mypy_cache", ".ruff_cache"}
_CONFIG_NAMES = ("config", "config.worktree")
_IN_REPOSITORY = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
_GITDIR_PREFIX = "gitdir: "
_MAX_POINTER_BYTES = 4096
_HEAD, _PARTS = "head", {"objects", "refs"}  # what makes a directory a repository
_DECISIVE_FILES = (
    *_IN_REPOSITORY,
    *(f"{folder}/{name}" for folder, names in STEP_FILES.items() for name in names),
)
_DECISIVE_FOLDERS = {"info", *STEP_FILES}
NAMES_OF_GIT = {_HEAD, *_PARTS, *(name.split("/")[0] for name in _DECISIVE_FILES)}
_MAX_REPOSITORIES = 2000  # that belong to one: its submodules and linked worktrees
_MAX_NAME_DEPTH = 8  # directories in the name of a submodule


class GuardedPaths(Struct, frozen=True):
    """Guarded paths that exist. `links` are those that are links, with their targets.

    `repositories` maps a guarded path in a git directory to that directory. `ages` numbers the
    paths in the order in which searches found them. `targets` maps a path that a git setting
    names to the settings file. `beyond` are directories that are not searched. `steps` are the
    files of `git_steps`, which commands may write.
    """

    paths: frozenset[str] = frozenset()
    links: dict[str, str] = {}
    repositories: dict[str, str] = {}
    ages: dict[str, int] = {}
    targets: dict[str, str] = {}
    beyond: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()

    def only(self, paths: Set[str]) -> "GuardedPaths":
        """These guarded paths, limited to `paths`."""
        return GuardedPaths(
            self.paths & paths,
            {path: target for path, target in self.links.items() if path in paths},
            self.repositories,
            self.ages,
            self.targets,
            self.beyond,
            self.steps,
        )

    def oldest_first(self, paths: Iterable[str]) -> list[str]:
        """Paths sorted by age, then depth: only a limited number can be mounted."""
        return sorted(paths, key=lambda p: (self.ages.get(p, 0), p.count("/"), p))

    @property
    def keys(self) -> frozenset[str]:
        """The guarded paths that hold secrets, according to their names."""
        return frozenset(filter(_has_keys, self.paths))


@lru_cache(4096)
def _has_keys(path: str) -> bool:
    return guard_reason(path.split("/")) == KEYS_REASON


class Guards:
    """`roots` are absolute, links followed. `user_files` are the user's files of git's settings.

    `beyond` is what an earlier search left out. `covered_directories` are not searched: no
    command sees what is in them.
    """

    def __init__(
        self,
        roots: Sequence[str],
        home: str = "",
        user_files: Sequence[str] = (),
        beyond: Set[str] | None = None,
        covered_directories: Sequence[str] = (),
    ) -> None:
        self._roots, self._git = tuple(roots), GitTargets(roots, home, user_files)
        self._covered = frozenset(covered_directories)
        self._known: Mapping[str, _Directory] = {}
        self._names, self._seen = tuple[str, ...](), list[tuple[str, int]]()
        self._repositories: Sequence[Repository] | None = None
        self._beyond = None if beyond is None else set(beyond)
        self._ages, self._looks = dict[str, int](), 0

    def paths(self) -> GuardedPaths:
        paths, repositories = set[str](), dict[str, str]()
        checkouts = {
            git: repository_of(git) for git in filter(None, map(_git_above, self._roots))
        }
        for path in self._named_paths():
            if os.path.basename(path).lower() == ".git":
                paths.add(path)
                inside = repository_of(path)
            elif os.path.basename(path).lower() == _HEAD:
                inside = directories_of(os.path.dirname(path))
            else:
                paths.add(path)
                continue
            checkouts[path] = inside
            for directory in inside:
                guarded = _existing_guarded(directory)
                paths.update(guarded)
                repositories |= dict.fromkeys(guarded, directory)
        directories = dict.fromkeys(git for inside in checkouts.values() for git in inside)
        steps = frozenset(step for git in directories for step in step_files(git))
        targets = self._targets(checkouts, paths, repositories)
        paths |= targets.keys()
        links = dict(_links(paths))
        # The directory of a repository is written by git all the time.
        shut = {
            p for p in paths if not (_is_dot_git(p) and os.path.isdir(p) and p not in links)
        }
        known, self._looks = self._ages, self._looks + 1
        self._ages = {path: known.get(path, self._looks) for path in paths}
        beyond = frozenset(self._beyond or ())
        return GuardedPaths(
            frozenset(shut), links, repositories, self._ages, targets, beyond, steps
        )

    def path_named_by_git(self, paths: Iterable[str]) -> str:
        """The first of these paths that a git setting makes git run or read; "" for none.

        Only repositories that the last search found count.
        """
        if self._repositories is None:
            self.paths()
        known = self._repositories or ()
        named = (p for p in paths for directory in known if self._git.names(p, directory))
        return next(named, "")

    def _targets(
        self,
        checkouts: Mapping[str, list[str]],
        paths: Set[str],
        repositories: dict[str, str],
    ) -> dict[str, str]:
        """Paths that git settings name, without those that are guarded anyway.

        Included files of settings are added to `repositories`.
        """
        targets, known = dict[str, str](), list[Repository]()
        for git, directories in checkouts.items():
            configs = [f"{d}/{name}" for d in directories for name in _CONFIG_NAMES]
            trees = (tree for config in configs for tree in self._git.worktrees(config))
            tops = dict.fromkeys((os.path.dirname(git), *trees))
            known.append(Repository((*configs,), (*tops,)))
            for path, file, includes in self._git.targets(known[-1]):
                if any(p in paths and not _is_dot_git(p) for p in path_and_parents(path)):
                    continue
                targets.setdefault(path, file)
                if includes:
                    repositories.setdefault(path, os.path.dirname(file))
        self._repositories = known
        return targets

    def _named_paths(self) -> Iterable[str]:
        """The guarded names. No new search if no directory has changed, which is the usual case."""
        if not self._seen or not _are_unchanged(self._seen):
            self._seen = []
            self._names = (*self._search(),)
        return self._names

    def _search(self) -> Iterator[str]:
        before, current, settled = self._known, dict[str, _Directory](), True
        beyond, waiting = self._beyond or set[str](), deque((r, r) for r in self._roots)
        while waiting:
            path, root = waiting.popleft()
            if path in current or path in beyond:
                continue
            if self._beyond is None and len(current) >= _MAX_DIRECTORIES:
                beyond.add(path)
                continue
            known = before.get(path)
            entry = _read_directory(path, root, known)
            if entry is None and self._beyond is None and os.path.lexists(path):
                beyond.add(path)
            elif entry is None and _make_readable(path, root, was_known=known is not None):
                entry = _read_directory(path, root, known)
            if entry is not None:
                current[path] = entry
                yield from entry.guarded
                waiting += [(p, root) for p in entry.below if p not in self._covered]
            settled = settled and entry is not None and entry.is_settled
        self._known, self._beyond = current, beyond
        # A missing target can be created in a directory that was not searched.
        seen = ((path, entry.changed) for path, entry in current.items())
        self._seen = list(seen) if settled else []


def _are_unchanged(directories: Iterable[tuple[str, int]]) -> bool:
    """Whether each of these directories still has the same change time."""
    lstat = os.lstat
    try:
        return all(lstat(path).st_ctime_ns == changed for path, changed in directories)
    except OSError:
        return False


def _make_readable(path: str, root: str, *, was_known: bool) -> bool:
    """Make a directory readable if programs can enter it: a command could hide files in it.

    A directory that no program can enter, and that was never known, hides nothing.
    """
    from refold.place.openat import FOLDER_FLAGS, open_beneath  # that is rare

    with suppress(OSError):
        top = os.open(root, FOLDER_FLAGS)
        try:
            descriptor = open_beneath(top, os.path.relpath(path, root), FOLDER_FLAGS)
        finally:
            os.close(top)
        try:
            about = os.stat(descriptor)
            enters = was_known or about.st_mode & stat.S_IXUSR
            if about.st_mode & _LIST_MODE == _LIST_MODE or not enters:
                return False
            # A descriptor that only names a directory changes it only by this path.
            os.chmod(
                f"/proc/self/fd/{descriptor}", stat.S_IMODE(about.st_mode) | _LIST_MODE
            )
        finally:
            os.close(descriptor)
        return True
    return False


class _Directory(Struct, frozen=True):
    changed: int
    looked: int
    guarded: tuple[str, ...]
    below: tuple[str, ...]

    @property
    def is_settled(self) -> bool:
        """Whether a change since the directory was read would have changed its time."""
        return self.looked > self.changed + _RACY_NANOSECONDS


def _read_directory(path: str, root: str, earlier: _Directory | None) -> _Directory | None:
    try:
        changed = os.lstat(path).st_ctime_ns
        if earlier and earlier.changed == changed and earlier.is_settled:
            return earlier
        looked = time.time_ns()
        with os.scandir(path) as entries:
            return _directory(path, root, list(entries), changed, looked)
    except OSError:  # deleted or not readable: then not by a command, either
        return None


def _directory(
    path: str, root: str, entries: Sequence[os.DirEntry[str]], changed_ns: int, read_ns: int
) -> _Directory:
    above = tuple(os.path.relpath(path, root).split("/")) if path != root else ()
    names = {entry.name for entry in entries}
    shut = {name for name in names if guard_reason((*above[-2:], name))}
    bare = [name for name in names if name.lower() == _HEAD] if is_repository(names) else []
    below = [
        entry.path
        for entry in entries
        if entry.name not in shut
        and entry.name not in _PACKAGE_FOLDERS
        and entry.is_dir(follow_symlinks=False)
    ]  # fmt: skip
    links = (entry.path for entry in entries if entry.is_symlink())
    below += (goal for goal in map(os.path.realpath, links) if _is_excluded(goal, root))
    return _Directory(
        changed_ns,
        read_ns,
        tuple(os.path.join(path, name) for name in sorted({*shut, *bare})),
        tuple(below),
    )


def _is_excluded(path: str, root: str) -> bool:
    """Whether the path is in a package folder or a guarded directory: no search enters these."""
    names = relative_name(path, root).split("/") if below(path, root) else ()
    return any(name in _PACKAGE_FOLDERS or guard_reason((name,)) for name in names)


def is_repository(names: Set[str]) -> bool:
    """Whether git takes a directory with these entries for a repository without a `.git`."""
    small = {name.lower() for name in names}
    return _HEAD in small and (small >= _PARTS or "commondir" in small)


def is_git_directory(directory: str) -> bool:
    """Whether git takes this directory for a repository."""
    try:
        return is_repository(set(os.listdir(directory)))
    except OSError:
        return False


def bare_repository_part(paths: Sequence[str]) -> str:
    """The first of these paths that decides what git runs, in a bare repository; "" for none.

    It is in a directory that git takes for a repository, or would once all of them exist: it
    names programs there, or makes it one.
    """
    named = dict[str, dict[str, str]]()  # of each directory, names in it, with such a path
    for path in paths:
        parts = path.split("/")
        for index in range(1, len(parts)):
            if parts[index].lower() in NAMES_OF_GIT:
                inside = named.setdefault("/".join(parts[:index]), {})
                deep = parts[index].lower() in _DECISIVE_FOLDERS
                part = "/".join(parts[index : index + 2 if deep else index + 1])
                inside.setdefault(part.lower(), path)
    for directory, inside in named.items():
        present = {name for name in NAMES_OF_GIT if os.path.lexists(f"{directory}/{name}")}
        present |= {_HEAD} if os.path.lexists(f"{directory}/HEAD") else set()
        if not is_repository(present | inside.keys()):
            continue
        if not is_repository(present):
            return next(iter(inside.values()))
        for name in _DECISIVE_FILES:
            if name in inside:
                return inside[name]
    return ""


def repository_of(path: str) -> list[str]:
    """The directories of the repository that a `.git` refers to: its own come last."""
    directory = gitdir_target(path) if os.path.isfile(path) else os.path.realpath(path)
    return directories_of(directory) if directory and os.path.isdir(directory) else []


def directories_of(directory: str) -> list[str]:
    """All directories in which git finds settings of this repository, its own come last.

    If a `commondir` file names another directory, both count. So do their submodules and
    linked worktrees, and the submodules and worktrees of these.
    """
    directories, waiting = dict[str, None](), deque([directory])
    while waiting and len(directories) < _MAX_REPOSITORIES:
        path = waiting.popleft()
        if path not in directories:
            directories[path] = None
            waiting += (main_git(path), *_submodules(path), *_subfolders(path, "worktrees"))
    return list(directories)[::-1]


def main_git(directory: str) -> str:
    """The git directory of the main repository for a linked worktree, else `directory`."""
    named = read_start(os.path.join(directory, "commondir"))
    return os.path.realpath(os.path.join(directory, named)) if named else directory


def worktree_of(root: str) -> str:
    """The repository that lists `root` as its linked worktree; "" for none.

    A file in the worktree proves nothing: it could name any directory. The
    repository must list the worktree, in a place where only its owner can write.
    """
    git = os.path.join(root, ".git")
    directory = gitdir_target(git) if os.path.isfile(git) else ""
    above, _ = os.path.split(directory)
    common = os.path.dirname(above)
    if not directory or os.path.basename(above) != "worktrees":
        return ""
    listed = read_start(os.path.join(directory, "gitdir"))
    if not listed or os.path.realpath(listed) != git or main_git(directory) != common:
        return ""
    return common if _is_repository(common) else ""


def proven_repository(root: str) -> str:
    """The repository that `root` is a checkout of: in its own `.git`, or one that knows it.

    "" for one that only a file or a link in `root` names: another user may have chosen it.
    """
    git = os.path.join(root, ".git")
    parts = [git, *(os.path.join(git, name) for name in ("objects", "refs", "HEAD"))]
    if os.path.isdir(git):
        linked = any(map(os.path.islink, parts)) or main_git(git) != git
        return "" if linked else git
    directory = gitdir_target(git)
    above, separator, _ = directory.partition("/.git/modules/")
    return directory if separator and below(root, above) else worktree_of(root)


def _is_repository(directory: str) -> bool:
    """Whether it is a repository of the user: directories and files that they own, no links."""
    try:
        parts = [os.lstat(os.path.join(directory, n)) for n in ("", "objects", "refs")]
        head = os.lstat(os.path.join(directory, "HEAD"))
    except OSError:
        return False
    mine = all(status.st_uid == os.geteuid() for status in (*parts, head))
    return (
        mine and all(stat.S_ISDIR(p.st_mode) for p in parts) and stat.S_ISREG(head.st_mode)
    )


def read_start(path: str) -> str:
    """The beginning of a small regular file, as git reads one; "" where there is none.

    As in git, line ends at its end are removed, and blanks stay. A pipe does not block.
    """
    try:
        start, _ = read_regular(path, _MAX_POINTER_BYTES)
    except (OSError, ValueError):
        return ""
    return os.fsdecode(start.rstrip(b"\r\n").partition(b"\0")[0])


def gitdir_target(path: str) -> str:
    """The directory that a `.git` file names; "" if it names none."""
    start = read_start(path)
    if not start.startswith(_GITDIR_PREFIX):
        return ""
    named = start.removeprefix(_GITDIR_PREFIX)
    return os.path.realpath(os.path.join(os.path.dirname(path), named))


def linked_step_folders(paths: Iterable[str]) -> Iterator[str]:
    """The step folders in the repository that a `.git` file names."""
    for path in paths:
        git, name = os.path.split(path)
        if name in STEP_FILES and (directory := gitdir_target(git)):
            yield f"{directory}/{name}"


def _submodules(directory: str) -> Iterator[str]:
    """Submodules: a name may have slashes in it."""
    waiting = deque((path, 1) for path in _subfolders(directory, "modules"))
    left = _MAX_REPOSITORIES
    while waiting and (left := left - 1):
        path, depth = waiting.popleft()
        if os.path.lexists(os.path.join(path, "HEAD")):
            yield path
        elif depth < _MAX_NAME_DEPTH:
            waiting += ((deeper, depth + 1) for deeper in _subfolders(path, ""))


def _subfolders(directory: str, name: str) -> list[str]:
    children = list[str]()
    with suppress(OSError), os.scandir(os.path.join(directory, name)) as entries:
        children = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(children)


def _existing_guarded(directory: str) -> list[str]:
    paths = (f"{directory}/{name}" for name in _IN_REPOSITORY)
    return [path for path in paths if os.path.lexists(path)]


def _links(paths: Set[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        with suppress(OSError):  # none, or gone
            yield path, os.readlink(path)


def _git_above(root: str) -> str:
    """The `.git` of the repository that a workspace is only a part of; "" if there is none."""
    above = (f"{path.rstrip('/')}/.git" for path in path_and_parents(root))
    repository = next(filter(os.path.lexists, above), "")
    return "" if repository == f"{root.rstrip('/')}/.git" else repository


def path_and_parents(path: str) -> Iterator[str]:
    """The path, and the directories above it."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


def _is_dot_git(path: str) -> bool:
    return os.path.basename(path).lower() == ".git"
