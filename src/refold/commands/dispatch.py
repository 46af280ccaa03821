"""Runs a typed slash command, template or skill.

The function of a slash command is an entry point of a package; `entry_points.txt` has refold's
own. A command's module is imported when the command is first typed, to keep the start fast.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import isawaitable
from typing import TypeAlias, cast

import anyio

from refold.client.session import Session
from refold.client.types import Shortcuts
from refold.commands import help
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.commands.session_lines import sentence
from refold.commands.table import (
    NEED_REASONS,
    SlashCommand,
    command_in,
    command_name,
    find_command,
    is_available,
)
from refold.errors import BadInput, RefoldError
from refold.plugins import Plugin, find_plugins, find_unique, own_plugins
from refold.views.escape import escape_to_one_line
from refold.views.styled import line

COMMANDS_GROUP = "refold.commands"  # the group of entry points
ChoicesOf: TypeAlias = Callable[[Session], Iterable[CompletionChoice]]


class CommandRunner:
    """Decides whether a typed text is a command or a message, and runs commands."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def is_command(self, typed: str) -> bool:
        return self._command_in(typed) is not None

    def is_immediate(self, typed: str) -> bool:
        command = find_command(command_name(typed))
        return command is not None and command.at_once

    async def run(self, typed: str) -> None:
        """Run the command that was typed, and show its error; do nothing for other text."""
        call = self._command_in(typed)
        if call is None:
            return
        try:
            name, arguments = self._resolve_alias(*call)
            await run_command(name, arguments, self._context)
        except RefoldError as error:
            self._context.show(sentence(error))

    def _command_in(self, typed: str) -> tuple[str, str] | None:
        """Return the name and the arguments of a typed command; None for a message.

        A template can also be typed as `@name slot=value …`.
        """
        if typed.lstrip().startswith("@"):
            typed = self._context.session.shortcuts.to_slash(typed) or typed
        return command_in(typed)

    def _resolve_alias(self, name: str, arguments: str) -> tuple[str, str]:
        """Return the name and arguments of a command, with an alias of the user replaced.

        A name that is not in the setting `command_aliases`, or that refold has a command for, is
        returned unchanged. Raises `BadInput` if the alias stands for no command, or for another
        alias.
        """
        aliases = self._context.session.settings.command_aliases
        alias = aliases.get(name)
        if alias is None or find_command(name) is not None:
            return name, arguments
        call = command_in(f"/{alias.removeprefix('/')} {arguments}".rstrip())
        if call is None or call[0] in aliases:
            raise BadInput(f"command_aliases: {name!r} stands for {alias!r}, not a command")
        return call


async def run_command(name: str, arguments: str, context: CommandContext) -> None:
    """Run the command `name`, or send the message that a prompt, template or skill makes.

    The name is looked up among refold's commands, the prompts of MCP servers, the commands of
    plug-ins, and the templates and skills, in this order. Raises `BadInput`, which suggests a
    similar name, if the name is not found.
    """
    typed = f"/{name} {arguments}".rstrip()
    command = find_command(name)
    if command is not None:
        if not is_available(command, context.session, context.lacks):
            raise BadInput(f"/{name} does not work here: {NEED_REASONS[command.needs]}.")
        await _run(entry_point(command), arguments, context)
        return
    servers = context.session.mcp
    if servers is not None:
        for prompt in servers.prompts():
            if prompt.name == name:
                text = await servers.expand(prompt, arguments)
                await context.say(text, typed=typed)
                return
    plugin = find_unique(find_plugins(COMMANDS_GROUP), name)
    if plugin is not None:
        await _run(plugin, arguments, context)
        return
    shortcuts = context.session.shortcuts
    if shortcuts.find(name) is None:
        shortcut_names = (info.name for info in shortcuts.infos())
        raise BadInput(help.unknown_command_error(name, shortcut_names))
    text = await _expand(context, shortcuts, name, arguments)
    await context.say(text, typed=typed)


async def _run(command: Plugin, arguments: str, context: CommandContext) -> None:
    """Call a command with its arguments, and show what it returns.

    A command of refold gets the context, and a command of another package the session.
    """
    function = command.function()
    try:
        output = function(context if command.ours else context.session, arguments)
        if isawaitable(output):
            output = await output
    except RefoldError:
        raise
    except Exception as error:  # a bug of the command must not end the session
        if command.ours:
            raise
        raise BadInput(
            f"/{command.name} failed: {type(error).__name__}: {error}"
        ) from error
    for row in str(output or "").splitlines():
        context.show(line(escape_to_one_line(row)))


def entry_point(command: SlashCommand) -> Plugin:
    """Return the entry point of a command of refold."""
    plugin = find_unique(own_plugins(COMMANDS_GROUP), command.name)
    if plugin is None:
        raise LookupError(f"/{command.name} is not in entry_points.txt")
    return plugin


def choices_of(command: SlashCommand, session: Session) -> Iterable[CompletionChoice]:
    """Return the arguments that may follow the command.

    These are the words of `command`, and what a function in the command's module returns:
    `choices` for a command whose function is `run`, and `choices_tag` for `run_tag`.
    """
    module, _, function = entry_point(command).value.partition(":")
    choices_name = function.replace("run", "choices", 1)
    choices = cast("ChoicesOf | None", getattr(import_module(module), choices_name, None))
    words = map(CompletionChoice, command.words)
    return (*words, *choices(session)) if choices is not None else tuple(words)


async def _expand(
    context: CommandContext, shortcuts: Shortcuts, name: str, arguments: str
) -> str:
    """Return the message of the template `name` with its arguments inserted.

    The user is asked for missing arguments. Raises `BadInput` if the user types nothing.
    """
    answers = dict[str, str]()
    for slot in shortcuts.missing(name, arguments):
        answers[slot] = await context.ask(f"{escape_to_one_line(slot)}:")
        if not answers[slot].strip():
            raise BadInput(f"/{name} needs {slot}, and nothing was typed")
    return await anyio.to_thread.run_sync(shortcuts.expand, name, arguments, answers)
