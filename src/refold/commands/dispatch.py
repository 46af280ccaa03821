"""Runs what is typed as a command: a slash command, a template, or a skill.

The functions of slash commands are entry points: `entry_points.txt` has ours. Each is
imported when it is typed, which keeps the start fast.
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
from refold.commands.table import NEED_REASONS, SlashCommand, command_in, find
from refold.errors import BadInput, RefoldError
from refold.plugins import Plugin, find_plugins, find_unique, own_plugins
from refold.views.escape import escape_to_one_line
from refold.views.styled import line

COMMANDS_GROUP = "refold.commands"  # the group of entry points
Choose: TypeAlias = Callable[[Session], Iterable[CompletionChoice]]


class CommandRunner:
    """Distinguishes commands from messages, and runs the commands of one surface."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def is_command(self, typed: str) -> bool:
        return self._command_in(typed) is not None

    def is_immediate(self, typed: str) -> bool:
        name = (command_in(typed) or ("",))[0]
        command = find(name)
        return command is not None and command.at_once

    async def run(self, typed: str) -> None:
        if (call := self._command_in(typed)) is None:
            return
        try:
            await run_command(*self._resolve_alias(*call), self._context)
        except RefoldError as error:
            self._context.show(sentence(error))

    def _command_in(self, typed: str) -> tuple[str, str] | None:
        """Parse a command; `@name slot=value …` of a template is one, too."""
        if typed.lstrip().startswith("@"):
            typed = self._context.session.shortcuts.to_slash(typed) or typed
        return command_in(typed)

    def _resolve_alias(self, name: str, arguments: str) -> tuple[str, str]:
        """Return the command of a user's alias (`command_aliases`), or what was typed."""
        aliases = self._context.session.settings.command_aliases
        if find(name) is not None or (alias := aliases.get(name)) is None:
            return name, arguments
        call = command_in(f"/{alias.removeprefix('/')} {arguments}".rstrip())
        if call is None or call[0] in aliases:
            raise BadInput(f"command_aliases: {name!r} stands for {alias!r}, not a command")
        return call


async def run_command(name: str, arguments: str, context: CommandContext) -> None:
    """Run a command. Raises `BadInput` for an unknown one, with the nearest name."""
    if (command := find(name)) is not None:
        if command.needs in context.lacks:
            raise BadInput(f"/{name} does not work here: {NEED_REASONS[command.needs]}.")
        await _run(entry_point(command), arguments, context)
        return
    if (servers := context.session.mcp) is not None:
        for prompt in servers.prompts():
            if prompt.name == name:
                text = await servers.expand(prompt, arguments)
                await context.say(text, typed=f"/{name} {arguments}".rstrip())
                return
    if (brought := find_unique(find_plugins(COMMANDS_GROUP), name)) is not None:
        await _run(brought, arguments, context)
        return
    shortcuts = context.session.shortcuts
    if shortcuts.find(name) is None:
        raise BadInput(
            help.unknown_command_error(name, (info.name for info in shortcuts.infos()))
        )
    text = await _expand(context, shortcuts, name, arguments)
    await context.say(text, typed=f"/{name} {arguments}".rstrip())


async def _run(command: Plugin, arguments: str, context: CommandContext) -> None:
    """Call a command with its arguments, and show what it returns.

    Our commands get the terminal, those of packages the session.
    """
    function = command.function()
    try:
        output = function(context if command.ours else context.session, arguments)
        if isawaitable(output):
            output = await output
    except RefoldError:
        raise
    except Exception as error:  # its bug must not end the session
        if command.ours:
            raise
        raise BadInput(
            f"/{command.name} failed: {type(error).__name__}: {error}"
        ) from error
    for row in str(output or "").splitlines():
        context.show(line(escape_to_one_line(row)))


def entry_point(command: SlashCommand) -> Plugin:
    """Return the entry point of one of our commands."""
    plugin = find_unique(own_plugins(COMMANDS_GROUP), command.name)
    if plugin is None:
        raise LookupError(f"/{command.name} is not in entry_points.txt")
    return plugin


def choices_of(command: SlashCommand, session: Session) -> Iterable[CompletionChoice]:
    """Return the arguments that may follow the command."""
    module, _, function = entry_point(command).value.partition(":")
    choose = cast(
        "Choose | None",
        getattr(import_module(module), function.replace("run", "choices", 1), None),
    )
    return (*map(CompletionChoice, command.words), *(choose(session) if choose else ()))


async def _expand(
    context: CommandContext, shortcuts: Shortcuts, name: str, arguments: str
) -> str:
    """Return the message of the template `/name rest`. Missing arguments are asked for."""
    answers = dict[str, str]()
    for slot in shortcuts.missing(name, arguments):
        answers[slot] = await context.ask(f"{escape_to_one_line(slot)}:")
        if not answers[slot].strip():
            raise BadInput(f"/{name} needs {slot}, and nothing was typed")
    return await anyio.to_thread.run_sync(shortcuts.expand, name, arguments, answers)
