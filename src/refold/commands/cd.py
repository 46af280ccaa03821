"""/cd: show the working directory, or continue in another one.
/add-dir: show the directories of the workspace, or add one.

The directory is checked here; the context opens the session there.
"""

import os
from collections.abc import Iterable

import anyio

from refold.client.elsewhere import find_directory_elsewhere
from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.commands.session_lines import directory_name, heading
from refold.errors import BadInput
from refold.values.path_names import below
from refold.views.escape import escape_to_one_line
from refold.views.styled import line


def choices(session: Session) -> Iterable[CompletionChoice]:
    named = session.settings.workspaces.items()
    return [CompletionChoice(name, escape_to_one_line(address)) for name, address in named]


async def run(context: CommandContext, arguments: str) -> None:
    """Switch the session to another directory; without arguments, list named workspaces."""
    workspaces = context.session.settings.workspaces
    if not arguments:
        show_directories(context)
        for name, address in workspaces.items():
            context.show(
                line(
                    f"elsewhere: {escape_to_one_line(name)}  {escape_to_one_line(address)}",
                    "dim",
                )
            )
        return
    # the local directory that stands for a workspace on another machine
    stand_in = await anyio.to_thread.run_sync(
        find_directory_elsewhere, arguments, workspaces
    )
    if stand_in is not None:
        directory = str(stand_in)
    else:
        directory = await _local_directory(context, "/cd", arguments)
    if directory == context.session.view.session.directory:
        context.show(
            line(f"{directory_name(directory)} is the working directory already.", "dim")
        )
        return
    await switch_to(context, ResumeTarget(directory=directory))


async def switch_to(context: CommandContext, target: ResumeTarget) -> None:
    """Switch to the session and directory of `target`, and show the directory."""
    notices = await context.switch(target)
    context.show(heading(context.session))
    _show_roots(context)
    for notice in notices:
        context.show(line(notice, "warn"))
    await context.show_session()


def show_directories(context: CommandContext) -> None:
    context.show(line(directory_name(context.session.view.session.directory)))
    _show_roots(context)


def directory_named(command: str, text: str, directory: str) -> str:
    """Return the real path of the directory `text`, which may be relative to `directory`.

    Raises `BadInput`, which names `command`, if the directory is missing or cannot be used.
    """
    path = os.path.join(directory, os.path.expanduser(text))
    try:
        real = os.path.realpath(path)
        exists, is_folder = os.path.lexists(path), os.path.isdir(real)
    except ValueError as error:
        raise BadInput(f"{command} {text!r}: {error}") from error
    if not is_folder:
        why = "is not a directory" if exists else "does not exist"
        raise BadInput(f"{command} {text!r}: {path} {why}")
    if not os.access(real, os.R_OK | os.X_OK):
        raise BadInput(f"{command} {text!r}: you have no permission to enter {real}")
    try:
        real.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{command} {text!r}: {real!r} cannot be written into a journal, because its "
            "name is not valid UTF-8"
        ) from error
    return real


def _show_roots(context: CommandContext) -> None:
    for root in context.session.view.session.roots:
        context.show(line(f"and {directory_name(root)}", "dim"))


async def run_add_dir(context: CommandContext, arguments: str) -> None:
    """Add a directory to the session's workspace; without arguments, list the directories."""
    if not arguments:
        show_directories(context)
        return
    directory = await _local_directory(context, "/add-dir", arguments)
    about = context.session.view.session
    if any(below(directory, root) for root in (about.directory, *about.roots)):
        context.show(
            line(f"{directory_name(directory)} belongs to the workspace already.", "dim")
        )
        return
    await switch_to(context, ResumeTarget(added=(directory,)))


async def _local_directory(context: CommandContext, command: str, text: str) -> str:
    """Return the real path of the directory `text`. Raises `BadInput` as `directory_named`."""
    directory = context.session.view.session.directory
    return await anyio.to_thread.run_sync(directory_named, command, text, directory)
