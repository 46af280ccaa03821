"""The files below a directory, without those that git is told to ignore.

The same files that ripgrep finds with `--hidden` and without global or per-clone
ignore files: hidden ones are in, `.git` is not, links are not followed;
`.gitignore` counts from the top of its repository down, `.ignore` from anywhere
above. Used where ripgrep is not installed, and to mark what is ignored.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_BIGGEST = 1024 * 1024  # bytes: a larger ignore file is no ignore file


class Ignoring(Struct, frozen=True):
    """What is ignored in one directory: by its own rules, and by those above it."""

    directory: str
    git: "tuple[tuple[str, GitIgnoreSpec], ...]" = ()  # .gitignore: up to the repository
    own: "tuple[tuple[str, GitIgnoreSpec], ...]" = ()  # .ignore: these have the last word

    def ignores(self, name: str, *, directory: bool) -> bool:
        if name == ".git":
            return True
        full = os.path.join(self.directory, name)
        for where, rules in (*reversed(self.own), *reversed(self.git)):
            path = os.path.relpath(full, where) + ("/" if directory else "")
            if (said := rules.check_file(path).include) is not None:
                return said
        return False


def ignoring(directory: str) -> Ignoring:
    """The rules that hold in `directory`, an absolute path, from all files above."""
    above = os.path.dirname(directory)
    return ignoring_in(directory, ignoring(above) if above != directory else Ignoring(""))


def ignoring_in(directory: str, above: Ignoring) -> Ignoring:
    git = () if _is_repository(directory) else above.git
    return Ignoring(
        directory,
        (*git, *_rules(directory, ".gitignore")),
        (*above.own, *_rules(directory, ".ignore")),
    )


def in_repository(directory: str) -> bool:
    """Is this directory, an absolute path, in a clone of something?"""
    above = os.path.dirname(directory)
    return _is_repository(directory) or (above != directory and in_repository(above))


def walk(directory: str, on_step: Callable[[], None]) -> Iterator[str]:
    """Regular files below `directory`, an absolute path, in no order that matters.

    `on_step` is called at each directory; it may raise to end the walk.
    """
    waiting = [ignoring(directory)]
    while waiting:
        on_step()
        here = waiting.pop()
        for entry in _entries(here.directory):
            is_directory = entry.is_dir(follow_symlinks=False)
            if here.ignores(entry.name, directory=is_directory):
                continue
            if is_directory:
                waiting.append(ignoring_in(entry.path, here))
            elif entry.is_file(follow_symlinks=False):
                yield entry.path


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:  # gone, or not ours to read: ripgrep goes on, too
        return []


def _is_repository(directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, ".git"))


def _rules(directory: str, name: str) -> "tuple[tuple[str, GitIgnoreSpec], ...]":
    lines = _lines(os.path.join(directory, name))
    if not lines:
        return ()
    from pathspec import GitIgnoreSpec

    return ((directory, GitIgnoreSpec.from_lines(lines)),)


def _lines(path: str) -> list[str]:
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= _BIGGEST:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read().splitlines()
    except OSError:  # it went away, or is not ours to read
        pass
    return []
