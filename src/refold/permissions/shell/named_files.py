"""Which files a script names, for rules that forbid and for protected files.

For a known program, only the words that are files; for others, every word that could be
one. It returns too many rather than one too few.
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

_MOST_PLACES = 16
_LONGEST_NAME = 1_000
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
# Of an address, not a file.
_HOST_PATTERN = re.compile(r"(?!file:)\b[A-Za-z][\w+.-]*://[^/\s?#]+")


class NamedFile(Struct, frozen=True):
    """A file that a script names: the name, and the absolute path with links followed; both
    may have marks.

    `looks`: the command only reads it. `writes`: the program may write it. `deep`: the file
    stands for all that is below it.
    """

    path: str
    real: str
    looks: bool
    writes: bool
    deep: bool = False


def targets(text: str, cwd: str, facts: Facts) -> tuple[str, ...]:
    """The files that a script names, each with where it leads now. An approval holds for these."""
    place = posixpath.normpath(posixpath.join(facts.roots[0], cwd or "."))
    files = named_files(find_nested_commands(text), place, facts)
    return tuple(sorted({f"{file.path}\0{file.real}" for file in files}))


def named_files(nested: NestedCommands, cwd: str, facts: Facts) -> Iterator[NamedFile]:
    places = places_of(nested, cwd, facts)
    # Only the file words matter here, not whether git can be trusted.
    facts = structs.replace(facts, sandboxed=True)
    # A command that runs others is listed as a whole and in parts.
    seen = set[NamedFile]()
    for command in nested.commands:
        for name in _files_of_command(command, places, facts):
            if name not in seen:
                seen.add(name)
                yield name
    for text in nested.quoted:
        if len(text) < _LONGEST_NAME and "\n" not in text:
            for place in places:
                yield NamedFile(*_paths_of(text, place, facts), looks=False, writes=True)
    for redirect in nested.redirects:
        for place in places:
            path = _paths_of(redirect.target.value, place, facts)
            yield NamedFile(*path, looks=not redirect.writes, writes=redirect.writes)


def _files_of_command(
    command: tuple[Word, ...], places: tuple[str, ...], facts: Facts
) -> Iterator[NamedFile]:
    name = name_of(command)
    words = tuple(quoting.ShellWord(w.text) for w in command)
    files = files_of(SimpleCommand(words), facts)
    looks = not files.problem
    indexes = files.at if looks else range(1, len(command))
    if name in ("sed", "gsed"):
        scripts = sed_scripts([w.text for w in command[1:]])
        indexes = [index for index in indexes if index - 1 not in scripts]
    deep = _reads_deep(name, [w.text for w in command])
    inside = not looks or name == "git"  # `HEAD:.env` names a file, too
    for value in {
        v for i in indexes for v in _possible_names(command[i].value, inside=inside)
    }:
        for place in places:
            path = _paths_of(value, place, facts)
            yield NamedFile(*path, looks=looks, writes=name in _WRITING_PROGRAMS, deep=deep)
    if deep and (not looks or not files.at):
        for place in places:
            yield NamedFile(place, place, looks=True, writes=False, deep=True)


def _possible_names(value: str, *, inside: bool) -> Iterator[str]:
    yield value
    if inside:
        pieces = _PATH_SEPARATORS.split(_HOST_PATTERN.sub("address", value))
        yield from (piece for piece in pieces[1:] if piece)
        if value.startswith("-") and len(value) > 2:
            yield value[2:]


def _reads_deep(name: str, values: list[str]) -> bool:
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
    """The directories in which a part of the script may run."""
    places = [cwd]
    for command in nested.commands:
        goes = name_of(command) in ("cd", "pushd") and len(command) > 1
        if goes or (name_of(command) == "git" and command[1:2] == (Word("-C"),)):
            value = command[-1 if goes else min(2, len(command) - 1)].value.replace(
                HOME_MARK, facts.home or UNKNOWN_GAP
            )
            if not MARK_PATTERN.search(value):
                places += [posixpath.normpath(posixpath.join(p, value)) for p in places]
        places = list(dict.fromkeys(places))[:_MOST_PLACES]
    return tuple(places)
