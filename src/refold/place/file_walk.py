"""Lists the files below a directory, without those that git ignores.

They are the files that ripgrep finds with `--hidden`: hidden files are listed, `.git` is not,
and links are not followed. `.gitignore`, `.git/info/exclude` and the user's exclude file count
from the top of their repository down; `.ignore` counts from any directory above. If ripgrep is
installed, `grep` uses it, and passes it the user's exclude file, because a sandbox may hide
that file.

The listing of a walk is remembered. The next walk from the same directory reads only
directories that have changed, and those below a changed ignore file.
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

# the size of the user's exclude file, which is passed as one argument
_MAX_USER_BYTES = 65_536
_MAX_LISTED_NAMES = 50_000  # the number of names
_MAX_IGNORE_FILE_BYTES = 1024 * 1024  # a larger ignore file is not used
_MAX_REMEMBERED_NAMES = 300_000  # a longer listing is not remembered
_MAX_REMEMBERED_WALKS = 3
_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time
_COARSE_RACY_NANOSECONDS = 2_000_000_000  # for times in full seconds, or only in even ones

# the names that decide what is ignored in a directory
_RULE_NAMES = (".git", ".gitignore", ".ignore")

# The directory of an ignore file, and its lines.
_Rules: TypeAlias = tuple[str, IgnoreLines]


class DirectoryIgnores(Struct, frozen=True):
    """The ignore rules for the names in `directory`, with those of directories above it.

    `ignored` means that the directory itself is ignored; it can still be listed.
    """

    directory: str
    # from the user, the clone and .gitignore files: up to the repository's top
    git: tuple[_Rules, ...] = ()
    own: tuple[_Rules, ...] = ()  # from .ignore files, which take precedence
    ignored: bool = False
    user: IgnoreLines = NO_LINES  # from the user, for repositories inside the directory

    def ignores(self, name: str, *, directory: bool) -> bool:
        return _is_ignored(name, self.by_prefix(), directory=directory)

    def by_prefix(self) -> Sequence[tuple[str, IgnoreLines]]:
        """Return the lines of each ignore file, in the order in which they are tried.

        With each comes the path from the directory of the ignore file to this directory.
        """
        directory = f"{self.directory.rstrip('/')}/"
        prefixed_lines = list[tuple[str, IgnoreLines]]()
        for base, lines in (*reversed(self.own), *reversed(self.git)):
            base_length = len(base.rstrip("/")) + 1
            prefixed_lines.append((directory[base_length:], lines))
        return prefixed_lines


def _is_ignored(
    name: str, by_prefix: Sequence[tuple[str, IgnoreLines]], *, directory: bool
) -> bool:
    """Whether `name` is ignored in a directory.

    `by_prefix` is what `DirectoryIgnores.by_prefix` returns. The first file with a matching
    line decides. `.git` is always ignored.
    """
    if name == ".git":
        return True
    for prefix, lines in by_prefix:
        ignored = lines.is_ignored(prefix + name, directory=directory)
        if ignored is not None:
            return ignored
    return False


def user_excludes() -> str:
    """Return the text of the user's exclude file, which applies to all repositories.

    git calls it core.excludesFile. Return "" if there is none or it is too long.
    """
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PATH")
    # A tuple can be the key of a cache.
    return _user_excludes(tuple((n, os.environ[n]) for n in names if n in os.environ))


def directory_ignores(directory: str, excludes: str | None = None) -> DirectoryIgnores:
    """Return the ignore rules for the names in `directory`, an absolute path.

    `excludes` is the text of the user's exclude file; if it is None, the file is read.
    """
    parent = os.path.dirname(directory)
    if parent == directory:  # the root of the disk
        user = read_lines(user_excludes() if excludes is None else excludes)
        user_rules = (("/", user),) if user else ()
        # As if there were a directory above the root that has the user's rules.
        base = DirectoryIgnores("", git=user_rules, user=user)
        return subdirectory_ignores(directory, base)
    return subdirectory_ignores(directory, directory_ignores(parent, excludes))


def subdirectory_ignores(
    directory: str, parent_rules: DirectoryIgnores, names: Collection[str] = _RULE_NAMES
) -> DirectoryIgnores:
    """Return the ignore rules for the names in `directory`, from its parent's rules.

    Only ignore files that are among `names` are read; by default, all are tried.
    """
    own = _rules(directory, ".ignore") if ".ignore" in names else ()
    git = _rules(directory, ".gitignore") if ".gitignore" in names else ()
    if ".git" in names and _is_repository(directory):
        # git applies no rules from above the top of a repository.
        git_above = _rules_of_clone(directory, parent_rules.user)
        is_ignored = False
    else:
        git_above = parent_rules.git
        name = os.path.basename(directory)
        is_ignored = parent_rules.ignored or parent_rules.ignores(name, directory=True)
    return DirectoryIgnores(
        directory,
        git=(*git_above, *git),
        own=(*parent_rules.own, *own),
        ignored=is_ignored,
        user=parent_rules.user,
    )


def _rules_of_clone(top: str, user: IgnoreLines) -> tuple[_Rules, ...]:
    """Return the rules of the user's exclude file and of the repository's info/exclude."""
    own = read_lines(_read_ignore_file(_exclude_file(top)))
    return tuple((top, lines) for lines in (user, own) if lines)


def _exclude_file(top: str) -> str:
    from refold.place.ignore_rules import common_git_folder

    return os.path.join(common_git_folder(top), "info", "exclude")


@lru_cache(4)
def _user_excludes(environ: tuple[tuple[str, str], ...]) -> str:
    """Return the text of the user's exclude file; "" if there is none or it is too long."""
    from refold.place.ignore_rules import excludes_of_user
    from refold.programs import Programs

    variables = dict(environ)
    text = excludes_of_user(variables, Programs(variables).find("git") or "")
    if len(text) > _MAX_USER_BYTES:
        return ""
    return os.fsdecode(text.replace(b"\0", b""))


def is_in_repository(directory: str) -> bool:
    """Whether `directory`, an absolute path, is in a git repository."""
    parent = os.path.dirname(directory)
    return _is_repository(directory) or (parent != directory and is_in_repository(parent))


def repository_top(directory: str) -> str:
    """Return the top directory of the repository that contains `directory`; "" if none does."""
    while not _is_repository(directory):
        parent = os.path.dirname(directory)
        if parent == directory:
            return ""
        directory = parent
    return directory


def files_with_ignored(directory: str) -> Iterator[str]:
    """Yield the files and links below `directory`, including ignored ones, up to a limit.

    `.git` is left out.
    """
    count = 0
    for parent, directories, names in os.walk(directory):
        # `os.walk` does not enter a directory that is removed from this list.
        directories[:] = [name for name in directories if name != ".git"]
        count += len(names) + len(directories)
        yield from (os.path.join(parent, name) for name in names if name != ".git")
        if count > _MAX_LISTED_NAMES:
            return


def walk(
    directory: str,
    on_step: Callable[[], None],
    excludes: str | None = None,
    on_unread: Callable[[str, str], None] | None = None,
) -> Iterator[str]:
    """Yield the regular files below `directory` that are not ignored, in no fixed order.

    `directory` is absolute, and `excludes` is as in `directory_ignores`. `on_step` is called
    for each directory and may raise, which stops the walk. `on_unread` gets each directory that
    cannot be listed, and the reason.
    """
    folders = DirectoryDescriptors((), open_beneath)
    memory = _memory_of(directory)
    remembered = dict[str, _Listing]()
    name_count = 0  # in the remembered listings
    rules_above = directory_ignores(os.path.dirname(directory), excludes)
    # Directories to list, each with the rules of its parent directory.
    to_list = [(directory, rules_above)]
    while to_list:
        on_step()
        path, parent_rules = to_list.pop()
        listing = memory.listings.get(path)
        if listing is None or not listing.is_current(path, parent_rules):
            listing, why = _list_directory(path, parent_rules, folders)
            if why and on_unread is not None:
                on_unread(path, why)
        if listing.is_settled:
            remembered[path] = listing
            name_count += len(listing.files)
        base = path.rstrip("/")
        to_list += ((f"{base}/{name}", listing.rules) for name in listing.directories)
        yield from (f"{base}/{name}" for name in listing.files)
    memory.listings = remembered if name_count <= _MAX_REMEMBERED_NAMES else {}


class _Memory:
    """The directory listings that the last complete walk from one directory left."""

    def __init__(self) -> None:
        self.listings: Mapping[str, _Listing] = {}


@lru_cache(_MAX_REMEMBERED_WALKS)
def _memory_of(_directory: str) -> _Memory:
    # The cache returns the memory that an earlier walk from this directory has filled.
    return _Memory()


class _Listing(Struct, frozen=True):
    """The names in a directory that are not ignored, and what they depend on.

    `changed` is the directory's change time, or -1 if the listing must not be used again.
    `read_ns` is when the directory was read. `ignore_files` are the paths of the ignore files
    in the directory, with their states.
    """

    rules: DirectoryIgnores
    parent_rules: DirectoryIgnores
    changed: int = -1
    read_ns: int = 0
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ignore_files: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether any change of the directory after the reading shows in its change time."""
        is_whole_second = self.changed % 1_000_000_000 == 0
        racy = _COARSE_RACY_NANOSECONDS if is_whole_second else _RACY_NANOSECONDS
        return 0 <= self.changed < self.read_ns - racy

    def is_current(self, path: str, parent_rules: DirectoryIgnores) -> bool:
        """Whether the directory at `path` would be listed in the same way now."""
        try:
            changed = os.lstat(path).st_ctime_ns
        except OSError:
            return False
        if changed != self.changed:
            return False
        # Identity is checked first, because it is fast.
        if parent_rules is not self.parent_rules and parent_rules != self.parent_rules:
            return False
        return all(_file_state(file) == state for file, state in self.ignore_files)


def _list_directory(
    path: str, parent_rules: DirectoryIgnores, folders: DirectoryDescriptors
) -> tuple[_Listing, str]:
    """Return the listing of a directory, and a reason if it is incomplete, else ""."""
    try:
        changed, read_ns = os.lstat(path).st_ctime_ns, time.time_ns()
    except OSError:
        changed, read_ns = -1, 0
    entries, why = _list_entries(path, folders)
    names = {name for name, _ in entries if name in _RULE_NAMES}
    states = tuple((file, _file_state(file)) for file in _ignore_files(path, names))
    rules = subdirectory_ignores(path, parent_rules, names)
    by_prefix = rules.by_prefix()  # computed once for all names
    shown = [
        (name, kind)
        for name, kind in entries
        if not _is_ignored(name, by_prefix, directory=kind == "directory")
    ]
    directories = tuple(name for name, kind in shown if kind == "directory")
    files = tuple(name for name, kind in shown if kind == "file")
    if why:
        changed = -1  # an incomplete listing is not used again
    listing = _Listing(rules, parent_rules, changed, read_ns, directories, files, states)
    return listing, why


def _ignore_files(directory: str, names: Collection[str]) -> Iterator[str]:
    """Yield the ignore files of `directory`. `names` says which of them exist."""
    for name in names:
        if name == ".git":
            yield _exclude_file(directory)
        else:
            yield os.path.join(directory, name)


def _file_state(path: str) -> tuple[int, ...]:
    """Return numbers that change whenever the file changes; () if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


def _list_entries(
    directory: str, folders: DirectoryDescriptors
) -> tuple[list[tuple[str, Kind]], str]:
    """Return the names in a directory with their kinds, and a reason if that failed, else "".

    A directory that does not exist any longer has no names. After a failure, the walk
    continues, as ripgrep does.
    """
    try:
        descriptor = folders.open(Real(directory), READ_FLAGS | os.O_DIRECTORY)
    except FileNotFoundError:  # deleted after its name was read
        return [], ""
    except OSError as error:
        return [], reason_of(error).lower()
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, _kind(entry)) for entry in entries], ""
    except OSError as error:
        return [], reason_of(error).lower()
    finally:
        os.close(descriptor)


def _kind(entry: os.DirEntry[str]) -> Kind:
    """Return the kind of an entry. A link is "other", because it is not followed."""
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "other"


def _is_repository(directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, ".git"))


def _rules(directory: str, name: str) -> tuple[_Rules, ...]:
    """Return the rules of the ignore file `name` in `directory`; () if it has none."""
    lines = read_lines(_read_ignore_file(os.path.join(directory, name)))
    return ((directory, lines),) if lines else ()


def _read_ignore_file(path: str) -> str:
    """Return the text of an ignore file; "" if it cannot be read or is too long."""
    # Follow a link, as ripgrep does, and do not wait for a pipe.
    try:
        descriptor = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)
    except OSError:  # missing or not readable
        return ""
    try:
        status = os.fstat(descriptor)
        if kind_of(status.st_mode) != "file" or status.st_size > _MAX_IGNORE_FILE_BYTES:
            return ""
        return os.fsdecode(os.read(descriptor, _MAX_IGNORE_FILE_BYTES))
    except OSError:
        return ""
    finally:
        os.close(descriptor)
