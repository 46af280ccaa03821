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
from refold.permissions.shell.sed_and_awk import sed_scripts
from refold.permissions.shell.simple_commands import SimpleCommand
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

    Both may have marks for unknown text. `reads_only`: the command only reads the file.
    `writes`: the command may write the file. `recursive`: the file stands for everything below
    it.
    """

    path: str
    real: str
    reads_only: bool
    writes: bool
    recursive: bool = False


def targets(text: str, cwd: str, facts: Facts) -> tuple[str, ...]:
    """Return a text for each file that a script names: its path, a NUL character and its real
    path.

    The user's approval of the script applies to these files.
    """
    directory = posixpath.normpath(posixpath.join(facts.roots[0], cwd or "."))
    files = named_files(find_nested_commands(text), directory, facts)
    return tuple(sorted({f"{file.path}\0{file.real}" for file in files}))


def named_files(nested: NestedCommands, cwd: str, facts: Facts) -> Iterator[NamedFile]:
    """Yield the files that a script names, for each directory in which a command may run.

    These are arguments, short texts in programs of other languages, and files of redirections.
    """
    directories = possible_directories(nested, cwd, facts)
    # Only the words that are files matter here, not whether git can be trusted.
    facts = structs.replace(facts, sandboxed=True)
    # A command that runs others is listed as a whole and in parts.
    seen = set[NamedFile]()
    for command in nested.commands:
        for file in _files_of_command(command, directories, facts):
            if file not in seen:
                seen.add(file)
                yield file
    for text in nested.quoted:
        if len(text) < _MAX_NAME_CHARS and "\n" not in text:
            for directory in directories:
                path, real = _paths_of(text, directory, facts)
                yield NamedFile(path, real, reads_only=False, writes=True)
    for redirect in nested.redirects:
        for directory in directories:
            path, real = _paths_of(redirect.target.value, directory, facts)
            reads_only = not redirect.writes
            yield NamedFile(path, real, reads_only=reads_only, writes=redirect.writes)


def _files_of_command(
    command: tuple[Word, ...], directories: tuple[str, ...], facts: Facts
) -> Iterator[NamedFile]:
    """Yield the files that one command names, for each of the directories.

    If the command may do more than read, each of its words may be a file.
    """
    name = name_of(command)
    texts = [word.text for word in command]
    words = tuple(quoting.ShellWord(text) for text in texts)
    files = files_of(SimpleCommand(words), facts)
    reads_only = not files.problem
    indexes = files.indexes if reads_only else range(1, len(command))
    if name in ("sed", "gsed"):
        # `sed_scripts` counts from the first argument, but `indexes` from the program.
        script_indexes = {index + 1 for index in sed_scripts(texts[1:])}
        indexes = [index for index in indexes if index not in script_indexes]
    recursive = _reads_all_below(name, texts)
    with_parts = not reads_only or name == "git"  # `HEAD:.env` names a file, too
    file_names = set[str]()
    for index in indexes:
        file_names.update(_possible_paths(command[index].value, with_parts=with_parts))
    writes = name in _WRITING_PROGRAMS
    for file_name in file_names:
        for directory in directories:
            path, real = _paths_of(file_name, directory, facts)
            yield NamedFile(path, real, reads_only, writes, recursive)
    if recursive and (not reads_only or not files.indexes):
        # A recursive command that names no file reads the directory in which it runs.
        for directory in directories:
            yield NamedFile(
                directory, directory, reads_only=True, writes=False, recursive=True
            )


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
    """Whether the command `name` reads all files below the folders that it names.

    `values` are the words of the command. `cat` reads all files if an argument is not known,
    such as `$(find .)`.
    """
    match name:
        case "grep" | "egrep" | "fgrep":
            # `--recursive` and `--dereference-recursive`, or a letter in a word such as `-rn`
            return any(
                value.endswith("-recursive") or re.fullmatch(r"-[A-Za-z]*[rR].*", value)
                for value in values
            )
        case "find":
            return "-exec" in values or "-execdir" in values
        case "cat":
            return any(value.startswith(UNKNOWN_GAP) for value in values[1:])
        case "git":
            return "grep" in values
        case _:
            return name == "rg"


def _paths_of(value: str, directory: str, facts: Facts) -> tuple[str, str]:
    """Return the path that a word names in `directory`, and that path with links resolved.

    In `/link/a?c/d`, where `?` is the mark of some unknown text, only `/link` is resolved. If a
    word begins with unknown text, both paths are that word.
    """
    word = value.replace(DIRECTORY_MARK, ".").replace(HOME_MARK, facts.home or UNKNOWN_GAP)
    if word.startswith(UNKNOWN_GAP):
        return word, word
    path = posixpath.join(directory, word)
    if not MARK_PATTERN.search(path):
        return posixpath.normpath(path), posixpath.normpath(facts.follow(path))
    text_before_mark = MARK_PATTERN.split(path)[0]
    known_folder = text_before_mark.rpartition("/")[0]  # "" for the root
    slash_and_rest = path[len(known_folder) :]
    real_folder = posixpath.normpath(facts.follow(known_folder or "/"))
    return path, real_folder.rstrip("/") + slash_and_rest


def possible_directories(nested: NestedCommands, cwd: str, facts: Facts) -> tuple[str, ...]:
    """Return the directories in which parts of a script may run: `cwd`, and those that `cd`
    or `git -C` enters.
    """
    directories = [cwd]
    for command in nested.commands:
        name = name_of(command)
        if name in ("cd", "pushd") and len(command) > 1:
            entered = command[-1].value
        elif name == "git" and command[1:2] == (Word("-C"),) and len(command) > 2:
            entered = command[2].value
        else:
            continue
        entered = entered.replace(HOME_MARK, facts.home or UNKNOWN_GAP)
        if not MARK_PATTERN.search(entered):
            # The command may start in each of the directories so far.
            directories += [
                posixpath.normpath(posixpath.join(start, entered)) for start in directories
            ]
        directories = list(dict.fromkeys(directories))[:_MAX_DIRECTORIES]
    return tuple(directories)
