"""Lists the files below a directory, without those that git ignores.

They are the files that ripgrep finds with `--hidden`: hidden files are listed, `.git` is not, links
are not followed; `.gitignore`, `.git/info/exclude` and the user's own exclude file apply from the top
of their repository down, `.ignore` from any directory above. `grep` uses ripgrep if it is installed,
which gets the user's file from `tools.find`: a sandbox may hide it.

A walk remembers what it listed. The next walk from there reads only directories whose time has changed,
and those below changed ignore files.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from refold.errors import reason_of
from refold.place.gitignore import NO_LINES, IgnoreLines, read_lines
from refold.place.openat import READ_FLAGS, DirectoryDescriptors, kind_of, open_beneath
from refold.place.port import Kind, Real

_MAX_USER_BYTES = 65_536  # of the user's exclude file, passed as one argument
_MOST_LOOKED_AT = 50_000  # names
_MAX_IGNORE_FILE_BYTES = 1024 * 1024  # a larger ignore file does not count
_MAX_REMEMBERED_NAMES = 300_000  # of one walk; a larger one is not remembered
_MAX_REMEMBERED_WALKS = 3
_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time
_COARSE_RACY_NANOSECONDS = 2_000_000_000  # for times in full seconds, or only in even ones

_RULE_NAMES = (".git", ".gitignore", ".ignore")  # what decides in a directory

# The directory of an ignore file, and its lines.
_Rules: TypeAlias = tuple[str, IgnoreLines]


class DirectoryIgnores(Struct, frozen=True):
    """The ignore rules for the names in one directory: its own, and those of the directories above.

    `ignored` says that the directory itself is ignored. It is still listed if a caller names it.
    """

    directory: str
    # The user's, the clone's, and .gitignore: up to the repository.
    git: tuple[_Rules, ...] = ()
    own: tuple[_Rules, ...] = ()  # .ignore: these have the last word
    ignored: bool = False
    user: IgnoreLines = NO_LINES  # the user's, for the repositories below

    def ignores(self, name: str, *, directory: bool) -> bool:
        return _is_ignored(name, self.by_prefix(), directory=directory)

    def by_prefix(self) -> Sequence[tuple[str, IgnoreLines]]:
        """The lines, the first to be asked first, with the path of the directory below that of their file."""
        prefix = f"{self.directory.rstrip('/')}/"
        return [
            (prefix[len(base.rstrip("/")) + 1 :], lines)
            for base, lines in (*reversed(self.own), *reversed(self.git))
        ]


def _is_ignored(
    name: str, by_prefix: Sequence[tuple[str, IgnoreLines]], *, directory: bool
) -> bool:
    if name == ".git":
        return True
    for prefix, lines in by_prefix:
        ignored = lines.is_ignored(prefix + name, directory=directory)
        if ignored is not None:
            return ignored
    return False


def user_excludes() -> str:
    """The user's own exclude file (core.excludesFile), which holds in every repository."""
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PATH")
    return _user_excludes(tuple((n, os.environ[n]) for n in names if n in os.environ))


def directory_ignores(directory: str, excludes: str | None = None) -> DirectoryIgnores:
    """The rules that hold in `directory`, an absolute path, from all files above.

    `excludes` is the text of `user_excludes`, if the caller knows it.
    """
    parent = os.path.dirname(directory)
    if parent == directory:
        user = read_lines(user_excludes() if excludes is None else excludes)
        base = DirectoryIgnores("", (("/", user),) if user else (), user=user)
        return subdirectory_ignores(directory, base)
    return subdirectory_ignores(directory, directory_ignores(parent, excludes))


def subdirectory_ignores(
    directory: str, parent_rules: DirectoryIgnores, names: Collection[str] = _RULE_NAMES
) -> DirectoryIgnores:
    """The rules that hold in `directory`, from those of the directory above.

    `names` are those in the directory, if the caller knows them.
    """
    top = ".git" in names and _is_repository(directory)
    own, git = (
        _rules(directory, name) if name in names else ()
        for name in (".ignore", ".gitignore")
    )
    name = os.path.basename(directory)
    return DirectoryIgnores(
        directory,
        (
            *(_rules_of_clone(directory, parent_rules.user) if top else parent_rules.git),
            *git,
        ),
        (*parent_rules.own, *own),
        not top and (parent_rules.ignored or parent_rules.ignores(name, directory=True)),
        parent_rules.user,
    )


def _rules_of_clone(top: str, user: IgnoreLines) -> tuple[_Rules, ...]:
    own = read_lines(_read_ignore_file(_exclude_file(top)))
    return tuple((top, lines) for lines in (user, own) if lines)


def _exclude_file(top: str) -> str:
    from refold.place.ignore_rules import common_git_folder

    return os.path.join(common_git_folder(top), "info", "exclude")


@lru_cache(4)
def _user_excludes(environ: tuple[tuple[str, str], ...]) -> str:
    from refold.place.ignore_rules import excludes_of_user
    from refold.programs import Programs

    names = dict(environ)
    text = excludes_of_user(names, Programs(names).find("git") or "")
    return "" if len(text) > _MAX_USER_BYTES else os.fsdecode(text.replace(b"\0", b""))


def is_in_repository(directory: str) -> bool:
    """Whether this directory, an absolute path, is in a git repository."""
    parent = os.path.dirname(directory)
    return _is_repository(directory) or (parent != directory and is_in_repository(parent))


def repository_top(directory: str) -> str:
    """The top of the repository that this directory is in; "" in none."""
    while not _is_repository(directory):
        parent = os.path.dirname(directory)
        if parent == directory:
            return ""
        directory = parent
    return directory


def files_with_ignored(directory: str) -> Iterator[str]:
    """Yield regular files below `directory`, ignored ones too, up to a limit."""
    count = 0
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name != ".git"]
        count += len(names) + len(directories)
        yield from (os.path.join(parent, name) for name in names if name != ".git")
        if count > _MOST_LOOKED_AT:
            return


def walk(
    directory: str,
    on_step: Callable[[], None],
    excludes: str | None = None,
    on_unread: Callable[[str, str], None] | None = None,
) -> Iterator[str]:
    """Regular files below `directory`, an absolute path, in no particular order.

    `on_step` is called at each directory; it may raise to end the walk. `excludes`: as for
    `directory_ignores`. `on_unread` gets each directory that cannot be listed, and why.
    """
    folders = DirectoryDescriptors((), open_beneath)
    memory, remembered, count = _memory_of(directory), dict[str, _Listing](), 0
    waiting = [(directory, directory_ignores(os.path.dirname(directory), excludes))]
    while waiting:
        on_step()
        path, parent_rules = waiting.pop()
        listing = memory.listings.get(path)
        if listing is None or not listing.is_current(path, parent_rules):
            listing, why = _list_directory(path, parent_rules, folders)
            if why and on_unread is not None:
                on_unread(path, why)
        if listing.is_settled:
            remembered[path] = listing
            count += len(listing.files)
        base = path.rstrip("/")
        waiting += ((f"{base}/{name}", listing.rules) for name in listing.directories)
        yield from (f"{base}/{name}" for name in listing.files)
    memory.listings = remembered if count <= _MAX_REMEMBERED_NAMES else {}


class _Memory:
    """What the last whole walk from one directory listed."""

    def __init__(self) -> None:
        self.listings: Mapping[str, _Listing] = {}


@lru_cache(_MAX_REMEMBERED_WALKS)
def _memory_of(_directory: str) -> _Memory:
    return _Memory()


class _Listing(Struct, frozen=True):
    """What is not ignored in one directory, and what decided that.

    `changed` is the directory's time of change, `looked` when it was read. `above` are the rules
    of the directory above it, and `ignore_files` the states of its own ignore files.
    """

    rules: DirectoryIgnores
    parent_rules: DirectoryIgnores
    changed: int = -1
    looked: int = 0
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ignore_files: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether a change since the directory was read would have changed its time."""
        whole_seconds = self.changed % 1_000_000_000 == 0
        racy = _COARSE_RACY_NANOSECONDS if whole_seconds else _RACY_NANOSECONDS
        return 0 <= self.changed < self.looked - racy

    def is_current(self, path: str, parent_rules: DirectoryIgnores) -> bool:
        """Whether reading the directory again would give the same."""
        try:
            changed = os.lstat(path).st_ctime_ns
        except OSError:
            return False
        return (
            changed == self.changed
            and (parent_rules is self.parent_rules or parent_rules == self.parent_rules)
            and all(_file_state(file) == state for file, state in self.ignore_files)
        )


def _list_directory(
    path: str, parent_rules: DirectoryIgnores, folders: DirectoryDescriptors
) -> tuple[_Listing, str]:
    """The listing of a directory, and why it cannot be listed, or ""."""
    try:
        changed, looked = os.lstat(path).st_ctime_ns, time.time_ns()
    except OSError:
        changed, looked = -1, 0
    entries, why = _list_entries(path, folders)
    names = {name for name, _ in entries if name in _RULE_NAMES}
    states = tuple((file, _file_state(file)) for file in _ignore_files(path, names))
    rules = subdirectory_ignores(path, parent_rules, names)
    by_prefix = rules.by_prefix()  # once for all names
    shown = [
        (name, kind)
        for name, kind in entries
        if not _is_ignored(name, by_prefix, directory=kind == "directory")
    ]
    directories = tuple(name for name, kind in shown if kind == "directory")
    files = tuple(name for name, kind in shown if kind == "file")
    changed = -1 if why else changed
    return _Listing(rules, parent_rules, changed, looked, directories, files, states), why


def _ignore_files(directory: str, names: Collection[str]) -> Iterator[str]:
    """The files that decide what is ignored in a directory with these names, and below."""
    for name in names:
        path = os.path.join(directory, name)
        yield _exclude_file(directory) if name == ".git" else path


def _file_state(path: str) -> tuple[int, ...]:
    try:
        about = os.stat(path)
    except OSError:
        return ()
    return about.st_dev, about.st_ino, about.st_ctime_ns, about.st_size


def _list_entries(
    directory: str, folders: DirectoryDescriptors
) -> tuple[list[tuple[str, Kind]], str]:
    """The names in a directory, or why it cannot be listed: ripgrep continues, too."""
    try:
        number = folders.open(Real(directory), READ_FLAGS | os.O_DIRECTORY)
    except FileNotFoundError:  # deleted since its name was read
        return [], ""
    except OSError as error:
        return [], reason_of(error).lower()
    try:
        with os.scandir(number) as entries:
            return [(entry.name, _kind(entry)) for entry in entries], ""
    except OSError as error:
        return [], reason_of(error).lower()
    finally:
        os.close(number)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _is_repository(directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, ".git"))


def _rules(directory: str, name: str) -> tuple[_Rules, ...]:
    lines = read_lines(_read_ignore_file(os.path.join(directory, name)))
    return ((directory, lines),) if lines else ()


def _read_ignore_file(path: str) -> str:
    # A link is followed here, as ripgrep does; a pipe is not waited for.
    try:
        number = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)
    except OSError:  # missing or not readable
        return ""
    try:
        about = os.fstat(number)
        if kind_of(about.st_mode) != "file" or about.st_size > _MAX_IGNORE_FILE_BYTES:
            return ""
        return os.fsdecode(os.read(number, _MAX_IGNORE_FILE_BYTES))
    except OSError:
        return ""
    finally:
        os.close(number)
