"""Runs what is typed as a command: a slash command, a template, or a skill.

A command's module is imported here when it is typed, so that a start does without them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from inspect import isawaitable
from keyword import iskeyword
from typing import TypeAlias, cast

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

# Commands that stand in the module of another one, with which they share what they do.
_MODULES: Mapping[str, str] = {
    "add-dir": "cd", "agents": "agent", "approval": "mode",
    "delete": "edit", "doctor": "status", "background": "tree", "stop": "tree", "effort": "model", "thinking": "model", "execute": "plan",
    "plans": "plan", "format": "config", "note": "memory", "search": "resume",
    "sessions": "resume", "tag": "rename", "undo": "rewind",
}  # fmt: skip
Run: TypeAlias = Callable[[Terminal, str], Awaitable[None]]
Choose: TypeAlias = Callable[[Session], Iterable[CompletionChoice]]


class CommandRunner:
    """Implements `steering.Commands`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def is_command(self, typed: str) -> bool:
        return self._command_in(typed) is not None

    def is_immediate(self, typed: str) -> bool:
        name = (command_in(typed) or ("",))[0]
        found = find(name)
        return found is not None and found.at_once

    async def run(self, typed: str) -> None:
        if (found := self._command_in(typed)) is None:
            return
        try:
            await run_command(*self._meant(*found), self._terminal)
        except RefoldError as error:
            self._terminal.printer.line(sentence(error))

    def _command_in(self, typed: str) -> tuple[str, str] | None:
        """`@name slot=value …` of a template is a command, too."""
        if typed.lstrip().startswith("@"):
            typed = self._terminal.session.shortcuts.slashed(typed) or typed
        return command_in(typed)

    def _meant(self, name: str, rest: str) -> tuple[str, str]:
        """The command behind an alias of the user's (`command_aliases`), or what was typed."""
        aliases = self._terminal.session.settings.command_aliases
        if find(name) is not None or (alias := aliases.get(name)) is None:
            return name, rest
        found = command_in(f"/{alias.removeprefix('/')} {rest}".rstrip())
        if found is None or found[0] in aliases:
            raise BadInput(f"command_aliases: {name!r} stands for {alias!r}, not a command")
        return found


async def run_command(name: str, rest: str, here: Terminal) -> None:
    """Raises `BadInput` for an unknown command, with the nearest name."""
    if (command := find(name)) is not None:
        await run_of(command)(here, rest)
        return
    if (servers := here.session.mcp) is not None:
        for prompt in servers.prompts():
            if prompt.name == name:
                text = await servers.expanded(prompt, rest)
                await here.say(text, typed=f"/{name} {rest}".rstrip())
                return
    if (function := here.session.commands.get(name)) is not None:
        await _of_plugin(name, function, rest, here)
        return
    shortcuts = here.session.shortcuts
    if shortcuts.find(name) is None:
        raise BadInput(help.unknown(name, commands(), shortcuts.offered()))
    text = await _expanded(here, shortcuts, name, rest)
    await here.say(text, typed=f"/{name} {rest}".rstrip())


async def _of_plugin(
    name: str, function: Callable[..., object], rest: str, here: Terminal
) -> None:
    """Call it with the session and what was typed after its name; show what it returns."""
    try:
        said = function(here.session, rest)
        if isawaitable(said):
            said = await said
    except RefoldError:
        raise
    except Exception as error:  # its bug must not take the session with it
        raise BadInput(f"/{name} failed: {type(error).__name__}: {error}") from error
    for row in str(said or "").splitlines():
        here.printer.say(on_one_line(row))


def run_of(command: SlashCommand) -> Run:
    """`run` of the command's own module, or `run_NAME` of the one that it shares."""
    found = _part(command, "run")
    if found is None:
        raise LookupError(f"/{command.name} has no function")
    return cast(Run, found)


def choices_of(command: SlashCommand, session: Session) -> Iterable[CompletionChoice]:
    """What may follow the command."""
    choose = cast("Choose | None", _part(command, "choices"))
    return (*map(CompletionChoice, command.words), *(choose(session) if choose else ()))


def _part(command: SlashCommand, part: str) -> object:
    own = command.name.replace("-", "_")
    own = f"{own}_" if iskeyword(own) else own
    shared = _MODULES.get(command.name)
    module = import_module(f"refold.terminal.commands.{shared or own}")
    return getattr(module, f"{part}_{own}" if shared else part, None)


async def _expanded(here: Terminal, shortcuts: Shortcuts, name: str, rest: str) -> str:
    """The message that `/name rest` stands for. Missing arguments are asked for."""
    answers = dict[str, str]()
    for slot in shortcuts.missing(name, rest):
        answers[slot] = await here.ask_text(f"{on_one_line(slot)}:")
        if not answers[slot].strip():
            raise BadInput(f"/{name} needs {slot}, and nothing was typed")
    return await anyio.to_thread.run_sync(shortcuts.expanded, name, rest, answers)
