"""Finds the files that a script names, for deny and ask rules and for protected files.

The arguments of a known program that are files count; for another program, every argument that
could be a file. The result may have too many files, but never too few.
"""

import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct, structs

from refold.permissions.facts import Facts
from refold.permissions.shell import quoting
from refold.permissions.shell.file_arguments import files_of
from refold.permissions.shell.nested_commands import (
    NestedCommands,
    find_nested_commands,
    name_of,
)
from refold.permissions.shell.plain_script import SimpleCommand
from refold.permissions.shell.sed_and_awk import sed_scripts
from refold.permissions.shell.words import (
    DIRECTORY_MARK,
    HOME_MARK,
    MARK_PATTERN,
    UNKNOWN_GAP,
    Word,
)

_MAX_DIRECTORIES = 16
_MAX_NAME_CHARS = 1_000
_WRITING_PROGRAMS = frozenset(
    [
        "rm",
        "mv",
        "cp",
        "touch",
        "tee",
        "ln",
        "install",
        "truncate",
        "dd",
        "mkdir",
        "rmdir",
        "chmod",
        "chown",
        "chgrp",
        "shred",
        "sed",
        "rsync",
        "sponge",
        "patch",
        "unlink",
        "rename",
    ]
)
_PATH_SEPARATORS = re.compile(r"[=:@,]")
# The host of an address, which is not a file.
_HOST_PATTERN = re.compile(r"(?!file:)\b[A-Za-z][\w+.-]*://[^/\s?#]+")


class NamedFile(Struct, frozen=True):
    """A file that a script names. `path` is its path, and `real` is the path with links
    resolved.

    Both may have marks for unknown text. `looks`: the command only reads the file. `writes`: it
    may write it. `deep`: the file stands for everything below it.
    """

    path: str
    real: str
    looks: bool
    writes: bool
    deep: bool = False


def targets(text: str, cwd: str, facts: Facts) -> tuple[str, ...]:
    """Return a text for each file that a script names: its path, a NUL character and its real
    path.

    The user's approval of the script applies to these files.
    """
    place = posixpath.normpath(posixpath.join(facts.roots[0], cwd or "."))
    files = named_files(find_nested_commands(text), place, facts)
    return tuple(sorted({f"{file.path}\0{file.real}" for file in files}))


def named_files(nested: NestedCommands, cwd: str, facts: Facts) -> Iterator[NamedFile]:
    """Yield the files that a script names, for each directory in which a command may run."""
    places = places_of(nested, cwd, facts)
    # Only the words that are files matter here, not whether git can be trusted.
    facts = structs.replace(facts, sandboxed=True)
    # A command that runs others is listed as a whole and in parts.
    seen = set[NamedFile]()
    for command in nested.commands:
        for name in _files_of_command(command, places, facts):
            if name not in seen:
                seen.add(name)
                yield name
    for text in nested.quoted:
        if len(text) < _MAX_NAME_CHARS and "\n" not in text:
            for place in places:
                yield NamedFile(*_paths_of(text, place, facts), looks=False, writes=True)
    for redirect in nested.redirects:
        for place in places:
            path = _paths_of(redirect.target.value, place, facts)
            yield NamedFile(*path, looks=not redirect.writes, writes=redirect.writes)


def _files_of_command(
    command: tuple[Word, ...], places: tuple[str, ...], facts: Facts
) -> Iterator[NamedFile]:
    """Yield the files that one command names, for each of the directories `places`."""
    name = name_of(command)
    words = tuple(quoting.ShellWord(w.text) for w in command)
    files = files_of(SimpleCommand(words), facts)
    looks = not files.problem
    indexes = files.indexes if looks else range(1, len(command))
    if name in ("sed", "gsed"):
        scripts = sed_scripts([w.text for w in command[1:]])
        indexes = [index for index in indexes if index - 1 not in scripts]
    deep = _reads_all_below(name, [w.text for w in command])
    with_parts = not looks or name == "git"  # `HEAD:.env` names a file, too
    values = set[str]()
    for index in indexes:
        values.update(_possible_paths(command[index].value, with_parts=with_parts))
    for value in values:
        for place in places:
            path = _paths_of(value, place, facts)
            yield NamedFile(*path, looks=looks, writes=name in _WRITING_PROGRAMS, deep=deep)
    if deep and (not looks or not files.indexes):
        for place in places:
            yield NamedFile(place, place, looks=True, writes=False, deep=True)


def _possible_paths(value: str, *, with_parts: bool) -> Iterator[str]:
    """Yield the parts of a word that may be paths, beginning with the whole word.

    With `with_parts`, also yield what follows a separator (`--file=PATH`, `HEAD:PATH`) or a
    short option (`-fPATH`).
    """
    yield value
    if with_parts:
        pieces = _PATH_SEPARATORS.split(_HOST_PATTERN.sub("address", value))
        yield from (piece for piece in pieces[1:] if piece)
        if value.startswith("-") and len(value) > 2:
            yield value[2:]


def _reads_all_below(name: str, values: list[str]) -> bool:
    """Whether the command reads all files below the folders that it names."""
    if name in ("grep", "egrep", "fgrep"):
        return any(
            v.endswith("-recursive") or re.fullmatch(r"-[A-Za-z]*[rR].*", v) for v in values
        )
    if name == "find":
        return any(v in ("-exec", "-execdir") for v in values)
    if name == "cat":
        return any(v.startswith(UNKNOWN_GAP) for v in values[1:])
    return name == "rg" or (name == "git" and "grep" in values)


def _paths_of(value: str, place: str, facts: Facts) -> tuple[str, str]:
    """Return the path that a word names in the directory `place`, and that path with links
    resolved.
    """
    value = value.replace(DIRECTORY_MARK, ".").replace(HOME_MARK, facts.home or UNKNOWN_GAP)
    if value.startswith(UNKNOWN_GAP):
        return value, value
    path = posixpath.join(place, value)
    if not MARK_PATTERN.search(path):
        return posixpath.normpath(path), posixpath.normpath(facts.follow(path))
    start = MARK_PATTERN.split(path)[0].rpartition("/")[0]
    rest = path[len(start) :]
    return path, posixpath.normpath(facts.follow(start or "/")).rstrip("/") + rest


def places_of(nested: NestedCommands, cwd: str, facts: Facts) -> tuple[str, ...]:
    """Return the directories in which parts of a script may run: `cwd`, and those that `cd`
    enters.
    """
    places = [cwd]
    for command in nested.commands:
        name = name_of(command)
        if name in ("cd", "pushd") and len(command) > 1:
            directory = command[-1].value
        elif name == "git" and command[1:2] == (Word("-C"),) and len(command) > 2:
            directory = command[2].value
        else:
            continue
        directory = directory.replace(HOME_MARK, facts.home or UNKNOWN_GAP)
        if not MARK_PATTERN.search(directory):
            places += [posixpath.normpath(posixpath.join(p, directory)) for p in places]
        places = list(dict.fromkeys(places))[:_MAX_DIRECTORIES]
    return tuple(places)
