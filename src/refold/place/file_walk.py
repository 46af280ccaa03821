"""Lists the files below a directory, without those that git ignores.

They are the files that ripgrep finds with `--hidden`: hidden files are listed, `.git` is not, links
are not followed; `.gitignore`, `.git/info/exclude` and the user's own exclude file apply from the top
of their repository down, `.ignore` from any directory above. It is used if ripgrep is not installed,
and to mark ignored files. ripgrep is given the user's file by `tools.find`: a sandbox may hide it.
"""

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from refold.errors import reason_of
from refold.place.gitignore import IgnoreLine, is_ignored, read_lines
from refold.place.openat import READ_FLAGS, DirectoryDescriptors, kind_of, open_beneath
from refold.place.port import Kind, Real

_MAX_USER_BYTES = 65_536  # of the user's exclude file, passed as one argument
_MOST_LOOKED_AT = 50_000  # names
_MAX_IGNORE_FILE_BYTES = 1024 * 1024  # a larger ignore file does not count

# The directory of an ignore file, and its lines.
_Rules: TypeAlias = tuple[str, tuple[IgnoreLine, ...]]


class DirectoryIgnores(Struct, frozen=True):
    """The ignore rules for the names in one directory: its own, and those of the directories above.

    `ignored` says that the directory itself is ignored. It is still listed if a caller names it.
    """

    directory: str
    git: tuple[
        _Rules, ...
    ] = ()  # the user's, the clone's, and .gitignore: up to the repository
    own: tuple[_Rules, ...] = ()  # .ignore: these have the last word
    ignored: bool = False
    user: tuple[IgnoreLine, ...] = ()  # the user's, for the repositories below

    def ignores(self, name: str, *, directory: bool) -> bool:
        if name == ".git":
            return True
        full = os.path.join(self.directory, name)
        for base, lines in (*reversed(self.own), *reversed(self.git)):
            path = full[len(base.rstrip("/")) + 1 :]
            if (ignored := is_ignored(lines, path, directory=directory)) is not None:
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
    above = os.path.dirname(directory)
    if above == directory:
        user = read_lines(user_excludes() if excludes is None else excludes)
        base = DirectoryIgnores("", (("/", user),) if user else (), user=user)
        return subdirectory_ignores(directory, base)
    return subdirectory_ignores(directory, directory_ignores(above, excludes))


def subdirectory_ignores(directory: str, above: DirectoryIgnores) -> DirectoryIgnores:
    top = _is_repository(directory)
    name = os.path.basename(directory)
    return DirectoryIgnores(
        directory,
        (
            *(_rules_of_clone(directory, above.user) if top else above.git),
            *_rules(directory, ".gitignore"),
        ),
        (*above.own, *_rules(directory, ".ignore")),
        not top and (above.ignored or above.ignores(name, directory=True)),
        above.user,
    )


def _rules_of_clone(top: str, user: tuple[IgnoreLine, ...]) -> tuple[_Rules, ...]:
    from refold.place.ignore_rules import common_git_folder

    exclude = os.path.join(common_git_folder(top), "info", "exclude")
    own = read_lines(_read_ignore_file(exclude))
    return tuple((top, lines) for lines in (user, own) if lines)


@lru_cache(4)
def _user_excludes(environ: tuple[tuple[str, str], ...]) -> str:
    from refold.place.ignore_rules import excludes_of_user
    from refold.programs import Programs

    names = dict(environ)
    text = excludes_of_user(names, Programs(names).find("git") or "")
    return "" if len(text) > _MAX_USER_BYTES else os.fsdecode(text.replace(b"\0", b""))


def is_in_repository(directory: str) -> bool:
    """Whether this directory, an absolute path, is in a git repository."""
    above = os.path.dirname(directory)
    return _is_repository(directory) or (above != directory and is_in_repository(above))


def repository_top(directory: str) -> str:
    """The top of the repository that this directory is in; "" in none."""
    while not _is_repository(directory):
        above = os.path.dirname(directory)
        if above == directory:
            return ""
        directory = above
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
    waiting = [directory_ignores(directory, excludes)]
    while waiting:
        on_step()
        current = waiting.pop()
        entries, why = _list_entries(current.directory, folders)
        if why and on_unread is not None:
            on_unread(current.directory, why)
        for name, kind in entries:
            if current.ignores(name, directory=kind == "directory"):
                continue
            path = os.path.join(current.directory, name)
            if kind == "directory":
                waiting.append(subdirectory_ignores(path, current))
            elif kind == "file":
                yield path


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
