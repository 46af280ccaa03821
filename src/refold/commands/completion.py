"""Completes commands, their arguments, and file names after "@" at the cursor.

This module reads at most one directory for a completion. `workspace_files` searches the whole
workspace. The line editor shows the completions.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock

from msgspec import Struct

from refold.values.printable_names import escape_name, unescape_name
from refold.views.picker import CompletionItem
from refold.views.wrap import cut

QUOTE_CHAR = '"'
# A file name at the end of the text: @"with spaces", or @without.
_FILE_NAME_PATTERN = re.compile(r"(?:^|[\s(\[])@(?:\"([^\"]*)|([^\s\"]*))$")
# The last word of a line that begins with !, and words that need no quotes in a shell.
_SHELL_WORD = re.compile(r"^\s*!.*?([\w./~+@%:,=-]*)$", re.DOTALL)
_SHELL_SAFE = re.compile(r"[\w./~+@%:,=-]+")
DIRECTORY_ARGUMENT = "[DIR]"  # the usage text of commands that take a directory
_MAX_OFFERS = 50  # offered at once
# Cells for a command with its arguments; its description is beside it.
_COMMAND_CELLS = 32
_MIN_LETTERS = 2  # typed, before files are searched by parts of their names


class NamedCommand(Struct, frozen=True):
    """A command to complete: its name without the slash, its arguments, and a description."""

    name: str
    about: str = ""
    takes: str = ""


class CompletionChoice(Struct, frozen=True):
    """A possible argument of a command. The choice is also found by the text `also`."""

    word: str
    about: str = ""
    also: str = ""


Complete = Callable[[str], Iterator[CompletionItem]]
Choices = Callable[[], Iterable[CompletionChoice]]
FindPaths = Callable[[str], Sequence[str]]


def fixed_choices(*words: str) -> Choices:
    """Return a function that always returns `words` as the choices."""
    choices = tuple(map(CompletionChoice, words))
    return lambda: choices


def cache_choices(choices: Choices, seconds: float = 5.0) -> Choices:
    """Return a function that caches the result of `choices` for some seconds.

    Each key press requests the choices.
    """
    lock = Lock()
    valid_until, values = 0.0, list[CompletionChoice]()

    def choices_from_cache() -> Sequence[CompletionChoice]:
        """Return the cached choices, or new choices if the cached ones are too old."""
        nonlocal valid_until, values
        with lock:
            if time.monotonic() >= valid_until:
                values = list(choices())
                valid_until = time.monotonic() + seconds
            return values

    return choices_from_cache


def find_nothing(typed: str) -> Sequence[str]:
    return ()


def completer_of(
    commands: Sequence[NamedCommand],
    choices: Mapping[str, Choices],
    directory: Callable[[], str],
    find_paths: FindPaths = find_nothing,
    complete_from_servers: Complete = lambda _: iter(()),
) -> Complete:
    """Return a function that yields the completions of the text before the cursor.

    `choices` returns the arguments of a command, by its name. `directory` returns the directory
    of file names, and `find_paths` searches the files of the workspace. `complete_from_servers`
    completes what MCP servers have: arguments of prompts, and resources after "@".
    """
    directory_commands = {
        command.name for command in commands if command.takes == DIRECTORY_ARGUMENT
    }

    def complete(before: str) -> Iterator[CompletionItem]:
        """Yield the completions of `before`, the input up to the cursor."""
        if file_name := _FILE_NAME_PATTERN.search(before):
            name_in_quotes, name_without_quotes = file_name.groups()
            is_quoted = name_in_quotes is not None
            name = name_in_quotes if is_quoted else name_without_quotes
            yield from _files(name, directory(), find_paths, quoted=is_quoted)
            yield from complete_from_servers(before)  # resources follow "@", too
        elif before.startswith("/") and "\n" not in before:
            head, space, arguments = before.partition(" ")
            name = head[1:]
            if not space:
                yield from _commands(before, commands)
                return
            yield from _matching_choices(arguments, choices.get(name))
            if name in directory_commands:
                yield from _directories(arguments, directory())
            else:
                yield from complete_from_servers(before)
        elif shell_word := _SHELL_WORD.search(before):
            yield from _names_without_quotes(shell_word[1], directory())

    return complete


def names_a_file(before: str) -> bool:
    """Return whether the text before the cursor ends with "@" and a part of a file name."""
    return _FILE_NAME_PATTERN.search(before) is not None


def _commands(before: str, commands: Iterable[NamedCommand]) -> Iterator[CompletionItem]:
    """Yield the commands that begin with what is typed. `before` is the input with its "/"."""
    typed = before[1:].lower()
    for command in commands:
        if command.name.startswith(typed):
            shown = cut(f"/{command.name} {command.takes}".rstrip(), _COMMAND_CELLS)
            yield CompletionItem(f"/{command.name}", len(before), command.about, shown)


def _matching_choices(arguments: str, choices: Choices | None) -> Iterator[CompletionItem]:
    """Yield the choices that contain the typed text; nothing if the command has no choices."""
    if choices is None:
        return
    typed = arguments.casefold()
    matching = (
        choice
        for choice in choices()
        if typed in choice.word.casefold() or typed in choice.also.casefold()
    )
    for choice in islice(matching, _MAX_OFFERS):
        yield CompletionItem(choice.word, len(arguments), choice.about)


def _directories(prefix: str, directory: str) -> Iterator[CompletionItem]:
    """Yield the directories that begin with `prefix`, except names that cannot be typed."""
    folder, name = os.path.split(prefix)
    for item, _ in _matching_names(folder, name, directory, only_folders=True):
        if escape_name(item) == item:
            yield CompletionItem(f"{item}/", len(name))


def _files(
    prefix: str, directory: str, find_paths: FindPaths, *, quoted: bool
) -> Iterator[CompletionItem]:
    """Yield the matching files of the typed directory, then those that `find_paths` finds.

    Nothing is searched if `prefix` is short, or names a place outside of the workspace.
    """
    seen_paths = set[str]()
    folder, name = os.path.split(prefix)
    for item, is_folder in _matching_names(folder, name, directory):
        path = os.path.join(folder, item)
        seen_paths.add(path)
        if offer := _offer(path, prefix, quoted=quoted, is_folder=is_folder):
            yield offer
    if len(prefix) < _MIN_LETTERS or prefix.startswith(("/", "~", "../")):
        return
    for path in find_paths(prefix):
        if len(seen_paths) >= _MAX_OFFERS:
            return
        if path not in seen_paths and (offer := _offer(path, prefix, quoted=quoted)):
            seen_paths.add(path)
            yield offer


def _matching_names(
    folder: str, name: str, directory: str, *, only_folders: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each name in `folder` that begins with `name`, and whether it is a directory."""
    try:
        path = os.path.join(directory, os.path.expanduser(unescape_name(folder)))
        with os.scandir(path) as entries:
            items = sorted(entries, key=lambda item: item.name)
    except (OSError, ValueError):
        return
    remaining = _MAX_OFFERS
    for item in items:
        if not escape_name(item.name).lower().startswith(name.lower()):
            continue
        if item.name.startswith(".") and not name.startswith("."):
            continue
        if only_folders and not item.is_dir():
            continue
        yield item.name, item.is_dir()
        remaining -= 1
        if not remaining:
            return


def _offer(
    path: str, prefix: str, *, quoted: bool, is_folder: bool = False
) -> CompletionItem | None:
    """Return the completion of a path, in quotes if needed.

    Return None if the path cannot be written in quotes.
    """
    name = escape_name(path)
    end = "/" if is_folder else ""
    needs_quotes = re.search(r"\s", name) is not None or name.startswith(QUOTE_CHAR)
    if not quoted and not needs_quotes:
        return CompletionItem(name + end, len(prefix))
    if QUOTE_CHAR in name:  # such a name cannot be quoted
        return None
    opening = "" if quoted else QUOTE_CHAR  # without it, the name would end at the space
    # After a folder the quote stays open, so that a name in the folder can follow.
    closing = end or QUOTE_CHAR
    return CompletionItem(f"{opening}{name}{closing}", len(prefix), shown=name + end)


def _names_without_quotes(prefix: str, directory: str) -> Iterator[CompletionItem]:
    """Yield completions of file names, but only of names that need no quotes in a shell."""
    folder, name = os.path.split(prefix)
    for item, is_folder in _matching_names(folder, name, directory):
        if _SHELL_SAFE.fullmatch(item):
            yield CompletionItem(item + ("/" if is_folder else ""), len(name))
