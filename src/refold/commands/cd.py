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
from refold.views.escape import on_one_line
from refold.views.styled import line


def choices(session: Session) -> Iterable[CompletionChoice]:
    named = session.settings.workspaces.items()
    return [CompletionChoice(name, on_one_line(address)) for name, address in named]


async def run(here: CommandContext, rest: str) -> None:
    directory = ""
    if rest:
        named = here.session.settings.workspaces
        elsewhere = await anyio.to_thread.run_sync(find_directory_elsewhere, rest, named)
        directory = str(elsewhere or "")
    directory = directory or await _directory_or_list(here, "/cd", rest)
    if not directory:
        for name, address in here.session.settings.workspaces.items():
            here.show(
                line(f"elsewhere: {on_one_line(name)}  {on_one_line(address)}", "dim")
            )
        return
    if directory == here.session.view.session.directory:
        here.show(
            line(f"{directory_name(directory)} is the working directory already.", "dim")
        )
        return
    await switch_to(here, ResumeTarget(directory=directory))


async def switch_to(here: CommandContext, target: ResumeTarget) -> None:
    """Continue in the target's directory, and show it."""
    notices = await here.switch(target)
    here.show(heading(here.session))
    _roots(here)
    for notice in notices:
        here.show(line(notice, "warn"))
    await here.show_session()


def show_directories(here: CommandContext) -> None:
    here.show(line(directory_name(here.session.view.session.directory)))
    _roots(here)


def directory_named(command: str, text: str, directory: str) -> str:
    """Return the real path of the directory `text`. Raises `BadInput` if there is none."""
    path = os.path.join(directory, os.path.expanduser(text))
    try:
        real = os.path.realpath(path)
        is_there, is_folder = os.path.lexists(path), os.path.isdir(real)
    except ValueError as error:
        raise BadInput(f"{command} {text!r}: {error}") from error
    if not is_folder:
        why = "is not a directory" if is_there else "does not exist"
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


def _roots(here: CommandContext) -> None:
    for root in here.session.view.session.roots:
        here.show(line(f"and {directory_name(root)}", "dim"))


async def run_add_dir(here: CommandContext, rest: str) -> None:
    directory = await _directory_or_list(here, "/add-dir", rest)
    if not directory:
        return
    about = here.session.view.session
    if any(below(directory, root) for root in (about.directory, *about.roots)):
        here.show(
            line(f"{directory_name(directory)} belongs to the workspace already.", "dim")
        )
        return
    await switch_to(here, ResumeTarget(added=(directory,)))


async def _directory_or_list(here: CommandContext, command: str, rest: str) -> str:
    """Return the named directory; without a name, show those of the session, return ""."""
    if not rest:
        show_directories(here)
        return ""
    directory = here.session.view.session.directory
    return await anyio.to_thread.run_sync(directory_named, command, rest, directory)
