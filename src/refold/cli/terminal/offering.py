"""What is offered at the prompt of this session: its commands, and what each takes."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from refold.cli.terminal.commands.table import commands
from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.keyboard.completion import (
    Choices,
    Complete,
    CompletionChoice,
    NamedCommand,
    Offer,
    completing,
    kept,
)
from refold.cli.terminal.keyboard.workspace_files import WorkspaceFiles
from refold.cli.terminal.surroundings import Surroundings
from refold.views.escape import on_one_line


def offering(here: Callable[[], Conversation]) -> Complete:
    """`here` is asked at each key: one may have gone elsewhere."""
    of: Surroundings | None = None
    found = completing((), {}, os.getcwd)

    def complete(before: str) -> Iterator[Offer]:
        nonlocal of, found
        if (around := here().around) is not of:
            of, found = around, offers_of(around, directory)
        return found(before)

    def directory() -> str:
        return here().session.view.about.directory or "."

    return complete


def offers_of(around: Surroundings, directory: Callable[[], str]) -> Complete:
    """`directory` is where the session works now."""
    table = [NamedCommand(c.name, c.about, c.takes) for c in commands()]
    if around.shortcuts:
        table += [
            NamedCommand(each.name.removeprefix("/"), on_one_line(each.about), each.usage)
            for each in around.shortcuts.offered()
        ]
    files = WorkspaceFiles(directory)
    return completing(table, _choices(around), directory, files.found)


def _choices(around: Surroundings) -> Mapping[str, Choices]:
    """By each name that a command has. What must be looked for is not, at each key."""
    found = dict[str, Choices]()
    for each in commands():
        choices = kept(partial(each.choices, around))
        found |= dict.fromkeys(each.names, choices)
    helped = [CompletionChoice(name) for each in commands() for name in each.names]
    found |= dict.fromkeys(("help", "?"), lambda: helped)
    return found
