"""Completions at the cursor: commands, their arguments, and file names after "@".

At most one directory is read here. `workspace_files` lists the files of the whole workspace; the
line editor shows the completions.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

from msgspec import Struct

from refold.values.printable_names import escape_name, unescape_name
from refold.views.picker import CompletionItem
from refold.views.wrap import cut

QUOTE_CHAR = '"'
# A file name at the end of the text: @"with spaces", or @without.
_FILE_NAME_PATTERN = re.compile(r"(?:^|[\s(\[])@(?:\"([^\"]*)|([^\s\"]*))$")
_SHELL_WORD = re.compile(r"^\s*!.*?([\w./~+@%:,=-]*)$", re.DOTALL)
_SHELL_SAFE = re.compile(r"[\w./~+@%:,=-]+")
DIRECTORY_ARGUMENT = "[DIR]"  # the argument of some commands
_MAX_OFFERS = 50  # offered at once
# Cells of a command with what it takes: what it is for stands beside it.
_COMMAND_CELLS = 32
_MIN_LETTERS = 2  # from which files are searched by parts of their names


class NamedCommand(Struct, frozen=True):
    """A command: its name without the slash, its arguments, and a description."""

    name: str
    about: str = ""
    takes: str = ""


class CompletionChoice(Struct, frozen=True):
    """An argument of a command. It is also found by `also`."""

    word: str
    about: str = ""
    also: str = ""


Complete = Callable[[str], Iterator[CompletionItem]]
Choices = Callable[[], Iterable[CompletionChoice]]
Found = Callable[[str], Sequence[str]]


def fixed_choices(*words: str) -> Choices:
    """Return choices that never change."""
    choices = tuple(map(CompletionChoice, words))
    return lambda: choices


def cache_choices(choices: Choices, seconds: float = 5.0) -> Choices:
    """Cache the choices for some seconds: they are requested at each key."""
    lock = Lock()
    until, values = 0.0, list[CompletionChoice]()

    def choices_from_cache() -> Sequence[CompletionChoice]:
        nonlocal until, values
        with lock:
            if time.monotonic() >= until:
                values = list(choices())
                until = time.monotonic() + seconds
            return values

    return choices_from_cache


def find_nothing(typed: str) -> Sequence[str]:
    return ()


def completer_of(
    commands: Sequence[NamedCommand],
    choices: Mapping[str, Choices],
    directory: Callable[[], str],
    find_paths: Found = find_nothing,
    of_servers: Complete = lambda _: iter(()),
) -> Complete:
    """Return a completer. `choices` are arguments of commands, `find_paths` searches files.

    `of_servers` completes arguments of prompts, and resources after "@".
    """
    among_directories = {
        command.name for command in commands if command.takes == DIRECTORY_ARGUMENT
    }

    def complete(before: str) -> Iterator[CompletionItem]:
        if named := _FILE_NAME_PATTERN.search(before):
            quoted, plain = named[1], named[2]
            name = quoted if quoted is not None else plain
            yield from _files(name, directory(), find_paths, quoted=quoted is not None)
            yield from of_servers(before)
        elif before.startswith("/") and "\n" not in before:
            head, space, rest = before.partition(" ")
            if space and head[1:] in among_directories:
                yield from _matching_choices(rest, choices.get(head[1:]))
                yield from _directories(rest, directory())
            elif space:
                yield from _matching_choices(rest, choices.get(head[1:]))
                yield from of_servers(before)
            else:
                yield from _commands(before, commands)
        elif word := _SHELL_WORD.search(before):
            yield from _names_without_quotes(word[1], directory())

    return complete


def names_a_file(before: str) -> bool:
    """Return True if the text ends with a file name after "@"."""
    return _FILE_NAME_PATTERN.search(before) is not None


def _commands(before: str, commands: Iterable[NamedCommand]) -> Iterator[CompletionItem]:
    for command in commands:
        if command.name.startswith(before[1:].lower()):
            shown = cut(f"/{command.name} {command.takes}".rstrip(), _COMMAND_CELLS)
            yield CompletionItem(f"/{command.name}", len(before), command.about, shown)


def _matching_choices(arguments: str, choices: Choices | None) -> Iterator[CompletionItem]:
    if choices is None:
        return
    wanted, left = arguments.casefold(), _MAX_OFFERS
    for choice in choices():
        if wanted in choice.word.casefold() or wanted in choice.also.casefold():
            yield CompletionItem(choice.word, len(arguments), choice.about)
            left -= 1
            if not left:
                return


def _directories(prefix: str, directory: str) -> Iterator[CompletionItem]:
    folder, name = os.path.split(prefix)
    for item, _ in _matching_names(folder, name, directory, only_folders=True):
        if escape_name(item) == item:
            yield CompletionItem(f"{item}/", len(name))


def _files(
    prefix: str, directory: str, find_paths: Found, *, quoted: bool
) -> Iterator[CompletionItem]:
    """Yield files of the directory that is typed, then those found below."""
    names = set[str]()
    folder, name = os.path.split(prefix)
    for item, is_folder in _matching_names(folder, name, directory):
        names.add(path := os.path.join(folder, item))
        if offer := _offer(path, prefix, quoted=quoted, is_folder=is_folder):
            yield offer
    if len(prefix) < _MIN_LETTERS or prefix.startswith(("/", "~", "../")):
        return
    for path in find_paths(prefix):
        if len(names) >= _MAX_OFFERS:
            return
        if path not in names and (offer := _offer(path, prefix, quoted=quoted)):
            names.add(path)
            yield offer


def _matching_names(
    folder: str, name: str, directory: str, *, only_folders: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield names with this start, and whether each is a directory."""
    try:
        path = os.path.join(directory, os.path.expanduser(unescape_name(folder)))
        with os.scandir(path) as entries:
            items = sorted(entries, key=lambda item: item.name)
    except (OSError, ValueError):
        return
    left = _MAX_OFFERS
    for item in items:
        if not escape_name(item.name).lower().startswith(name.lower()):
            continue
        if item.name.startswith(".") and not name.startswith("."):
            continue
        if only_folders and not item.is_dir():
            continue
        yield item.name, item.is_dir()
        left -= 1
        if not left:
            return


def _offer(
    path: str, prefix: str, *, quoted: bool, is_folder: bool = False
) -> CompletionItem | None:
    """Return the name as typed on one line, so that the tools understand it."""
    name = escape_name(path)
    end = "/" if is_folder else ""
    if not quoted and not re.search(r"\s", name) and not name.startswith(QUOTE_CHAR):
        return CompletionItem(name + end, len(prefix))
    if QUOTE_CHAR in name:  # it cannot be written
        return None
    opened = "" if quoted else QUOTE_CHAR  # otherwise it would end at the space
    return CompletionItem(
        f"{opened}{name}{end or QUOTE_CHAR}", len(prefix), shown=name + end
    )


def _names_without_quotes(prefix: str, directory: str) -> Iterator[CompletionItem]:
    """Yield names that need no quotes in a shell."""
    folder, name = os.path.split(prefix)
    for item, is_folder in _matching_names(folder, name, directory):
        if _SHELL_SAFE.fullmatch(item):
            yield CompletionItem(item + ("/" if is_folder else ""), len(name))
