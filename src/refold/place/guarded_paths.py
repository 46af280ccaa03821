"""Finds guarded paths in a workspace: files that must not change while a command runs.

`values.path_names` has the names of files that hold secrets or decide what runs. A directory
that is unchanged since the last search is not searched again. Installed packages are left out,
unless a link leads to them. In a very large workspace, the first search covers only the nearest
directories; later ones cover these and new directories. The sandbox protects the paths found,
and `guard_changes` moves away files that a command created under such a name.
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

_MAX_DIRECTORIES = 5000  # the number of directories in the first search
_LIST_MODE = stat.S_IRUSR | stat.S_IXUSR
_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time
_PACKAGES = {"node_modules", "site-packages", "__pycache__", ".tox", ".nox"}
_PACKAGE_FOLDERS = _PACKAGES | {".mypy_cache", ".ruff_cache"}
_CONFIG_NAMES = ("config", "config.worktree")
REPOSITORY_PATHS = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
HEAD_NAME, REPOSITORY_ENTRIES = "head", {"objects", "refs"}
_GITDIR_PREFIX = "gitdir: "
_MAX_POINTER_BYTES = 4096
_MAX_REPOSITORIES = 2000  # submodules and linked worktrees of one repository
_MAX_NAME_DEPTH = 8  # directories in a submodule's name


class GuardedPaths(Struct, frozen=True):
    """The guarded paths that exist. `links` maps those that are links to their targets.

    `repositories` maps a path in a git directory to that directory. `ages` maps each path to
    the number of the search that found it. `targets` maps a path that a git setting names to
    the settings file. `beyond` are directories that are not searched. `steps` are the files of
    `git_steps`, which commands may write.
    """

    paths: frozenset[str] = frozenset()
    links: dict[str, str] = {}
    repositories: dict[str, str] = {}
    ages: dict[str, int] = {}
    targets: dict[str, str] = {}
    beyond: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()

    def only(self, paths: Set[str]) -> "GuardedPaths":
        """Return a copy in which `paths` and `links` are limited to `paths`."""
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
        """Return paths sorted by age, then by depth. Only a limited number can be mounted."""
        return sorted(paths, key=lambda p: (self.ages.get(p, 0), p.count("/"), p))

    @property
    def keys(self) -> frozenset[str]:
        """The guarded paths whose names say that they hold secrets."""
        return frozenset(filter(_has_keys, self.paths))


@lru_cache(4096)
def _has_keys(path: str) -> bool:
    return guard_reason(path.split("/")) == KEYS_REASON


class Guards:
    """Searches for guarded paths below `roots`, which are real paths.

    `user_files` are the user's git settings files. `beyond` are directories that an earlier
    search left out. `covered_directories` are not searched: no command sees their content.
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
        self._known: Mapping[str, _Directory] = {}  # as the last search read them
        # The paths that the last search yielded, and the directories that it read.
        self._named, self._change_times = tuple[str, ...](), list[tuple[str, int]]()
        self._repositories: Sequence[Repository] | None = None
        self._beyond = None if beyond is None else set(beyond)
        self._ages, self._searches = dict[str, int](), 0

    def paths(self) -> GuardedPaths:
        """Return the guarded paths that exist now, and remember the repositories for git settings.

        Each path that exists for the first time gets the number of this search as its age.
        """
        paths, repositories = set[str](), dict[str, str]()
        # the git directories of each repository, by its `.git` or, if it is bare, by its HEAD
        checkouts = dict[str, list[str]]()
        for root in self._roots:
            if git := _git_above(root):
                checkouts[git] = repository_of(git)
        for path in self._named_paths():
            name = os.path.basename(path).lower()
            if name == ".git":
                paths.add(path)
                checkouts[path] = repository_of(path)
            elif name == HEAD_NAME:
                checkouts[path] = directories_of(os.path.dirname(path))
            else:
                paths.add(path)
                continue
            for directory in checkouts[path]:
                guarded = _existing_guarded(directory)
                paths.update(guarded)
                repositories |= dict.fromkeys(guarded, directory)
        git_directories = dict.fromkeys(git for gits in checkouts.values() for git in gits)
        steps = frozenset(step for git in git_directories for step in step_files(git))
        targets = self._targets(checkouts, paths, repositories)
        paths |= targets.keys()
        links = dict(_links(paths))
        self._searches += 1
        self._ages = {path: self._ages.get(path, self._searches) for path in paths}
        # git itself writes to a repository's directory all the time.
        paths -= {p for p in paths - links.keys() if _is_dot_git(p) and os.path.isdir(p)}
        return GuardedPaths(
            paths=frozenset(paths),
            links=links,
            repositories=repositories,
            ages=self._ages,
            targets=targets,
            beyond=frozenset(self._beyond or ()),
            steps=steps,
        )

    def path_named_by_git(self, paths: Iterable[str]) -> str:
        """Return the first path that a git setting makes git run or read; "" if none.

        Only repositories that the last search found count.
        """
        if self._repositories is None:
            self.paths()
        for path in paths:
            if any(self._git.names(path, known) for known in self._repositories or ()):
                return path
        return ""

    def _targets(
        self,
        checkouts: Mapping[str, list[str]],
        paths: Set[str],
        repositories: dict[str, str],
    ) -> dict[str, str]:
        """Return the paths that git settings name and that are not guarded otherwise.

        `checkouts` maps each `.git` to its directories. Included settings files are added to
        `repositories`.
        """
        targets, found = dict[str, str](), list[Repository]()
        for git, directories in checkouts.items():
            configs = [f"{d}/{name}" for d in directories for name in _CONFIG_NAMES]
            trees = (tree for config in configs for tree in self._git.worktrees(config))
            tops = dict.fromkeys((os.path.dirname(git), *trees))
            repository = Repository(tuple(configs), tuple(tops))
            found.append(repository)
            for path, file, is_include in self._git.targets(repository):
                # A guarded directory is guarded as a whole, but not `.git`.
                if any(p in paths and not _is_dot_git(p) for p in path_and_parents(path)):
                    continue
                targets.setdefault(path, file)
                if is_include:
                    repositories.setdefault(path, os.path.dirname(file))
        self._repositories = found
        return targets

    def _named_paths(self) -> Iterable[str]:
        """Return the paths with guarded names. Search again only if a directory has changed."""
        if not self._change_times or not _are_unchanged(self._change_times):
            self._change_times = []
            self._named = tuple(self._search())
        return self._named

    def _search(self) -> Iterator[str]:
        """Yield the guarded paths below the roots, those nearest to the roots first.

        Directories that have not changed since the last search are not read again. The first
        search leaves out unreadable directories, and all beyond a limit; later searches leave
        out the same. A directory that became unreadable later is made readable.
        """
        is_first_search = self._beyond is None
        beyond = self._beyond or set[str]()
        current = dict[str, _Directory]()
        are_settled = True
        waiting = deque((root, root) for root in self._roots)
        while waiting:
            path, root = waiting.popleft()  # a directory, and the root above it
            if path in current or path in beyond:
                continue
            if is_first_search and len(current) >= _MAX_DIRECTORIES:
                beyond.add(path)
                continue
            known = self._known.get(path)
            entry = _read_directory(path, root, known)
            if entry is None:
                if is_first_search and os.path.lexists(path):
                    beyond.add(path)
                elif _make_readable(path, root, was_known=known is not None):
                    entry = _read_directory(path, root, known)
            if entry is None:
                are_settled = False
                continue
            current[path] = entry
            yield from entry.guarded
            waiting += [(p, root) for p in entry.below if p not in self._covered]
            are_settled = are_settled and entry.is_settled
        self._known, self._beyond = current, beyond
        # If a later change might not show in these times, the next search does without them.
        change_times = ((path, entry.changed) for path, entry in current.items())
        self._change_times = list(change_times) if are_settled else []


def _are_unchanged(directories: Iterable[tuple[str, int]]) -> bool:
    """Whether each directory still has the change time that comes with it."""
    lstat = os.lstat  # looked up once, because there may be thousands of directories
    try:
        return all(lstat(path).st_ctime_ns == changed for path, changed in directories)
    except OSError:
        return False


def _make_readable(path: str, root: str, *, was_known: bool) -> bool:
    """Make a directory readable, because a command could hide files in it. Return True.

    Return False if it is readable already, or if it is new (not `was_known`) and closed.
    """
    from refold.place.openat import FOLDER_FLAGS, open_beneath  # rarely needed

    with suppress(OSError):
        top = os.open(root, FOLDER_FLAGS)
        try:
            descriptor = open_beneath(top, os.path.relpath(path, root), FOLDER_FLAGS)
        finally:
            os.close(top)
        try:
            status = os.stat(descriptor)
            is_readable = status.st_mode & _LIST_MODE == _LIST_MODE
            can_be_entered = was_known or status.st_mode & stat.S_IXUSR
            if is_readable or not can_be_entered:
                return False
            # An O_PATH descriptor cannot be used to change the mode, but this path can.
            mode = stat.S_IMODE(status.st_mode) | _LIST_MODE
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)
        return True
    return False


class _Directory(Struct, frozen=True):
    changed: int  # the change time, in nanoseconds
    read_ns: int  # when the directory was read
    guarded: tuple[str, ...]  # the guarded paths in it
    below: tuple[str, ...]  # the directories to search next

    @property
    def is_settled(self) -> bool:
        """Whether any change of the directory after the reading shows in its change time."""
        return self.read_ns > self.changed + _RACY_NANOSECONDS


def _read_directory(path: str, root: str, earlier: _Directory | None) -> _Directory | None:
    """Return what is in a directory; None if it cannot be read.

    `earlier`, the result of the last search, is returned if nothing has changed since.
    """
    try:
        changed = os.lstat(path).st_ctime_ns
        if earlier and earlier.changed == changed and earlier.is_settled:
            return earlier  # no entry was added or removed since
        read_ns = time.time_ns()
        with os.scandir(path) as entries:
            return _directory(path, root, list(entries), changed, read_ns)
    except OSError:  # deleted, or readable neither for us nor for a command
        return None


def _directory(
    path: str, root: str, entries: Sequence[os.DirEntry[str]], changed_ns: int, read_ns: int
) -> _Directory:
    """Return the guarded paths in the directory `path`, and the directories to search next.

    The next directories are those in it, and package folders and guarded directories to which
    its links lead.
    """
    parts = tuple(os.path.relpath(path, root).split("/")) if path != root else ()
    nearest_parts = parts[-2:]  # a guarded path is known by at most three names
    names = {entry.name for entry in entries}
    guarded_names = {name for name in names if guard_reason((*nearest_parts, name))}
    directories = [
        entry.path
        for entry in entries
        if entry.name not in guarded_names
        and entry.name not in _PACKAGE_FOLDERS
        and entry.is_dir(follow_symlinks=False)
    ]  # fmt: skip
    links = (entry.path for entry in entries if entry.is_symlink())
    targets = map(os.path.realpath, links)
    directories += (target for target in targets if _is_excluded(target, root))
    if is_repository(names):  # a bare one, which is found by its HEAD
        guarded_names |= {name for name in names if name.lower() == HEAD_NAME}
    return _Directory(
        changed=changed_ns,
        read_ns=read_ns,
        guarded=tuple(os.path.join(path, name) for name in sorted(guarded_names)),
        below=tuple(directories),
    )


def _is_excluded(path: str, root: str) -> bool:
    """Whether the path is in a package folder or guarded directory, where no search goes."""
    names = relative_name(path, root).split("/") if below(path, root) else ()
    return any(name in _PACKAGE_FOLDERS or guard_reason((name,)) for name in names)


def is_repository(names: Set[str]) -> bool:
    """Whether git takes a directory with these entries for a bare repository."""
    lower = {name.lower() for name in names}
    return HEAD_NAME in lower and (lower >= REPOSITORY_ENTRIES or "commondir" in lower)


def repository_of(path: str) -> list[str]:
    """Return `directories_of` the repository that the `.git` at `path` leads to; [] if none."""
    directory = gitdir_target(path) if os.path.isfile(path) else os.path.realpath(path)
    return directories_of(directory) if directory and os.path.isdir(directory) else []


def directories_of(directory: str) -> list[str]:
    """Return the directories with settings of a repository; `directory` comes last.

    The directories of its main repository, its submodules and its linked worktrees are
    included, and so on for each repository found.
    """
    directories, waiting = dict[str, None](), deque([directory])
    while waiting and len(directories) < _MAX_REPOSITORIES:
        path = waiting.popleft()
        if path not in directories:
            directories[path] = None
            waiting += (main_git(path), *_submodules(path), *_subfolders(path, "worktrees"))
    return list(directories)[::-1]


def main_git(directory: str) -> str:
    """Return the main repository's git directory for a linked worktree, else `directory`."""
    named = read_start(os.path.join(directory, "commondir"))
    return os.path.realpath(os.path.join(directory, named)) if named else directory


def worktree_of(root: str) -> str:
    """Return the git directory that lists `root` as its linked worktree; "" if none does.

    A file in the worktree proves nothing, because it could name any directory. The git
    directory must list the worktree and belong to the user.
    """
    git = os.path.join(root, ".git")
    directory = gitdir_target(git) if os.path.isfile(git) else ""
    # It is REPOSITORY/worktrees/NAME.
    worktrees = os.path.dirname(directory)
    repository = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees":
        return ""
    listed = read_start(os.path.join(directory, "gitdir"))
    lists_root = bool(listed) and os.path.realpath(listed) == git
    if not lists_root or main_git(directory) != repository:
        return ""
    return repository if _is_owned_repository(repository) else ""


def proven_repository(root: str) -> str:
    """Return the git directory of which `root` is certainly a checkout; "" if none.

    The result is `.git` in `root`, the git directory of a submodule, or one that lists `root`
    as its worktree. A link does not count: another user may have made it.
    """
    git = os.path.join(root, ".git")
    if os.path.isdir(git):
        parts = (git, *(os.path.join(git, name) for name in ("objects", "refs", "HEAD")))
        leads_elsewhere = any(map(os.path.islink, parts)) or main_git(git) != git
        return "" if leads_elsewhere else git
    directory = gitdir_target(git)
    superproject, separator, _ = directory.partition("/.git/modules/")
    return directory if separator and below(root, superproject) else worktree_of(root)


def _is_owned_repository(directory: str) -> bool:
    """Whether the user owns this git directory and its main parts, and none is a link."""
    try:
        parts = [os.lstat(os.path.join(directory, n)) for n in ("", "objects", "refs")]
        head = os.lstat(os.path.join(directory, "HEAD"))
    except OSError:
        return False
    if any(status.st_uid != os.geteuid() for status in (*parts, head)):
        return False
    return all(stat.S_ISDIR(p.st_mode) for p in parts) and stat.S_ISREG(head.st_mode)


def read_start(path: str) -> str:
    """Return the beginning of a regular file; "" if it cannot be read.

    As in git, line ends at the end are removed, and spaces stay. A pipe does not block.
    """
    try:
        start, _ = read_regular(path, _MAX_POINTER_BYTES)
    except (OSError, ValueError):
        return ""
    return os.fsdecode(start.rstrip(b"\r\n").partition(b"\0")[0])


def gitdir_target(path: str) -> str:
    """Return the directory that the `.git` file at `path` names; "" if it names none."""
    start = read_start(path)
    if not start.startswith(_GITDIR_PREFIX):
        return ""
    target = start.removeprefix(_GITDIR_PREFIX)
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def linked_step_folders(paths: Iterable[str]) -> Iterator[str]:
    """Yield the real step folder for each of `paths` that is below a `.git` file."""
    for path in paths:
        git, name = os.path.split(path)
        if name in STEP_FILES and (directory := gitdir_target(git)):
            yield f"{directory}/{name}"


def _submodules(directory: str) -> Iterator[str]:
    """Yield the git directories of submodules. Names of submodules may contain slashes."""
    waiting = deque((path, 1) for path in _subfolders(directory, "modules"))
    for _ in range(_MAX_REPOSITORIES - 1):
        if not waiting:
            return
        path, depth = waiting.popleft()
        if os.path.lexists(os.path.join(path, "HEAD")):
            yield path
        elif depth < _MAX_NAME_DEPTH:
            waiting += ((deeper, depth + 1) for deeper in _subfolders(path, ""))


def _subfolders(directory: str, name: str) -> list[str]:
    """Return the directories in `name` in `directory`; none if it cannot be read."""
    children = list[str]()
    with suppress(OSError), os.scandir(os.path.join(directory, name)) as entries:
        children = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(children)


def _existing_guarded(directory: str) -> list[str]:
    paths = (f"{directory}/{name}" for name in REPOSITORY_PATHS)
    return [path for path in paths if os.path.lexists(path)]


def _links(paths: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths that are links, each with its target."""
    for path in paths:
        with suppress(OSError):  # it is not a link
            yield path, os.readlink(path)


def _git_above(root: str) -> str:
    """Return the `.git` of a repository around a workspace; "" if there is none."""
    candidates = (f"{path.rstrip('/')}/.git" for path in path_and_parents(root))
    nearest = next(filter(os.path.lexists, candidates), "")
    is_of_root = nearest == f"{root.rstrip('/')}/.git"
    return "" if is_of_root else nearest


def path_and_parents(path: str) -> Iterator[str]:
    """Yield the path, and then each directory above it."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


def _is_dot_git(path: str) -> bool:
    return os.path.basename(path).lower() == ".git"
