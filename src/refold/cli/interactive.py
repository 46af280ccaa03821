"""A session in a terminal: opens it and gives it to the line terminal."""

import os
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio

from refold.app.memory_worker import start_worker
from refold.cli.launch import (
    enter_worktree,
    images,
    launch_of,
    open_or_resume,
    settings_of,
)
from refold.cli.output import read_yes
from refold.client.folder_trust import (
    NAMESPACES_QUESTION,
    SETTING_NAMESPACES,
    TrustOffer,
    find_changed_texts,
)
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from refold.tools.contract import ImageData

if TYPE_CHECKING:
    from refold.console.console_context import Beside


def run(args: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    with enter_worktree(args):
        return _start(args)


def _start(args: Namespace) -> int:
    _ask_about_the_folder(args)
    _ask_about_namespaces(args)
    launch = launch_of(args, attended=True, watched=True)
    if not launch.app.models.has_model_choice():
        from refold.cli.first_run import first_run

        if not first_run(launch.app):
            return 0
        launch = launch_of(args, attended=True, watched=True)
    launch.app.workspace.sandbox.begin()  # it is tried while the rest is loaded
    return anyio.run(_run, args, launch)


def _ask_about_the_folder(args: Namespace) -> None:
    """Show the settings and instructions of the folder, and ask whether to trust them."""
    here = settings_of(args)
    places = paths(os.environ)
    folders = TrustedFolders(places.folders)
    changes = () if args.trust else find_changed_texts(here.project.folder, places, folders)
    offer = TrustOffer(here.project, here.state, here.texts, changes)
    if not offer:
        return
    sys.stdout.write("".join(f"{line}\n" for line in offer.question_lines()))
    sys.stdout.write(f"\n{offer.question} [y/N] ")
    sys.stdout.flush()
    if read_yes():
        offer.accept(folders, places.data)
    else:
        sys.stdout.write(f"{offer.decline(folders, places.data)}\n")


def _ask_about_namespaces(args: Namespace) -> None:
    """Once in each folder, whether the setting that lets commands make them counts there."""
    here = settings_of(args)
    folders = TrustedFolders(paths(os.environ).folders)
    folder = here.project.folder
    if not here.settings.sandbox.user_namespaces or folders.has_namespaces(folder):
        return
    sys.stdout.write(f"{SETTING_NAMESPACES}\n{NAMESPACES_QUESTION} [y/N] ")
    sys.stdout.flush()
    if read_yes():
        folders.allow_namespaces(folder)
    else:
        args.user_namespaces = False
        sys.stdout.write("They cannot, in this session.\n")


Converse: TypeAlias = Callable[
    [Session, str, Sequence[ImageData], str | None, "Beside | None"], Awaitable[int]
]


def line_by_line() -> Converse:
    from refold.terminal.run import run

    return run


def full_screen() -> Converse:
    from refold.tui.app import check_terminal, run

    check_terminal(os.environ)
    return run


async def _run(args: Namespace, launch: Launch) -> int:
    try:
        if launch.app.makes_notes:  # what an earlier process could not finish
            start_worker(launch.app.project_memory, os.environ)
        text, typed = await launch.expand(args.text, args.text)
        session = Session(launch, await open_or_resume(launch, args))
        converse = (
            full_screen if session.settings.terminal.display == "full" else line_by_line
        )
        beside = partial(_fire_due, args.script) if launch.app.options.keep else None
        return await converse()(session, text, images(args), typed, beside)
    finally:
        with anyio.CancelScope(shield=True):  # otherwise nothing would close what is open
            await launch.aclose()
        launch.finish_notes()


async def _fire_due(script: str | None, say: Callable[[str], None]) -> None:
    from refold.client.due_schedules import fire_due

    await fire_due(os.environ, script, say)
