"""Makes the completers for the prompt of a session."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import (
    Choices,
    Complete,
    CompletionItem,
    FindPaths,
    NamedCommand,
    cache_choices,
    completer_of,
    fixed_choices,
)
from refold.commands.dispatch import COMMANDS_GROUP, choices_of
from refold.commands.server_completion import complete_from_servers
from refold.commands.table import Need, commands, is_available
from refold.commands.workspace_files import WorkspaceFiles
from refold.plugins import find_plugins
from refold.views.escape import escape_to_one_line


def session_completer(context: Callable[[], CommandContext]) -> Complete:
    """Return a completer for the session of a context.

    `context` is called at each key press, because the session may change.
    """
    known_session: Session | None = None
    complete_for_session = completer_of(commands=(), choices={}, directory=os.getcwd)

    def directory() -> str:
        return context().session.view.session.directory or "."

    def complete(before: str) -> Iterator[CompletionItem]:
        """Yield the completions for the session that the context has now."""
        nonlocal known_session, complete_for_session
        session = context().session
        if session is not known_session:
            known_session = session
            complete_for_session = completer_for(session, directory)
        return complete_for_session(before)

    return complete


def completer_for(
    session: Session,
    directory: Callable[[], str],
    lacks: Collection[Need] = (),
    find_paths: FindPaths | None = None,
) -> Complete:
    """Return a completer for `session`. `directory` returns the directory of the session.

    `lacks` are features that the surface lacks. `find_paths` searches the files of the
    workspace. Without `find_paths`, the completer makes its own list of the files.
    """
    files = WorkspaceFiles(directory, lambda _: session.workspace.file_names())
    return completer_of(
        list_commands(session, lacks),
        _choices(session),
        directory,
        find_paths or files.find,
        partial(complete_from_servers, session),
    )


def list_commands(session: Session, lacks: Collection[Need] = ()) -> list[NamedCommand]:
    """Return everything that can follow a slash: commands, templates, skills and so on."""
    table = [
        NamedCommand(c.name, c.about, c.takes)
        for c in commands()
        if is_available(c, session, lacks)
    ]
    table += [
        NamedCommand(
            entry.name.removeprefix("/"), escape_to_one_line(entry.about), entry.usage
        )
        for entry in session.shortcuts.infos()
    ]
    table += [
        NamedCommand(entry.name, escape_to_one_line(entry.about), entry.usage)
        for entry in (session.mcp.prompts() if session.mcp else ())
    ]
    table += [
        NamedCommand(entry.name, f"a command of {escape_to_one_line(entry.package)}", "")
        for entry in find_plugins(COMMANDS_GROUP)
    ]
    return table


def _choices(session: Session) -> Mapping[str, Choices]:
    """Return the choices by command name, cached between key presses."""
    by_name = dict[str, Choices]()
    for command in commands():
        choices = cache_choices(partial(choices_of, command, session))
        by_name |= dict.fromkeys(command.names, choices)
    # the arguments of /help are the commands themselves
    by_name |= dict.fromkeys(("help", "?"), fixed_choices(*by_name))
    return by_name
