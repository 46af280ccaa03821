"""Runs what is typed as a command: a slash command, a template, or a skill.

A command's module is imported here when it is typed, so that a start does without them.
"""

from collections.abc import Iterable
from importlib import import_module
from keyword import iskeyword
from typing import Protocol, cast

import anyio

from refold.client.session import Session
from refold.client.types import Shortcuts
from refold.errors import BadInput, RefoldError
from refold.terminal.commands import help
from refold.terminal.commands.table import SlashCommand, command_in, commands, find
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
from refold.terminal.work import sentence
from refold.views.escape import on_one_line


class CommandModule(Protocol):
    """What a module of this folder has that is a command."""

    async def run(self, here: Terminal, rest: str) -> None: ...


class CommandRunner:
    """Implements `steering.Commands`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def is_command(self, typed: str) -> bool:
        return command_in(typed) is not None

    def is_immediate(self, typed: str) -> bool:
        name = (command_in(typed) or ("",))[0]
        found = find(name)
        return found is not None and found.at_once

    async def run(self, typed: str) -> None:
        if (found := command_in(typed)) is None:
            return
        try:
            await run_command(*found, self._terminal)
        except RefoldError as error:
            self._terminal.printer.line(sentence(error))


async def run_command(name: str, rest: str, here: Terminal) -> None:
    """Raises `BadInput` for an unknown command, with the nearest name."""
    if (command := find(name)) is not None:
        await module_of(command).run(here, rest)
        return
    shortcuts = here.session.shortcuts
    if shortcuts.find(name) is None:
        raise BadInput(help.unknown(name, commands(), shortcuts.offered()))
    text = await _expanded(here, shortcuts, name, rest)
    await here.say(text, typed=f"/{name} {rest}".rstrip())


def module_of(command: SlashCommand) -> CommandModule:
    name = command.name.replace("-", "_")
    name = f"{name}_" if iskeyword(name) else name
    return cast(CommandModule, import_module(f"refold.terminal.commands.{name}"))


def choices_of(command: SlashCommand, session: Session) -> Iterable[CompletionChoice]:
    """What may follow the command."""
    found = getattr(module_of(command), "choices", None)
    return (*map(CompletionChoice, command.words), *(found(session) if found else ()))


async def _expanded(here: Terminal, shortcuts: Shortcuts, name: str, rest: str) -> str:
    """The message that `/name rest` stands for. Missing arguments are asked for."""
    answers = dict[str, str]()
    for slot in shortcuts.missing(name, rest):
        answers[slot] = await here.ask_text(f"{on_one_line(slot)}:")
        if not answers[slot].strip():
            raise BadInput(f"/{name} needs {slot}, and nothing was typed")
    return await anyio.to_thread.run_sync(shortcuts.expanded, name, rest, answers)
