"""A session in a terminal: opens it and gives it to the line terminal."""

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio

from refold.app.memory_worker import start_worker
from refold.cli.launch import (
    enter_directory,
    images,
    launch_of,
    open_or_resume,
    settings_of,
)
from refold.client.folder_trust import (
    TrustOffer,
    find_changed_texts,
)
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.folder_settings import FolderSettings
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from refold.tools.contract import ImageData

if TYPE_CHECKING:
    from refold.cli.start_questions import StartQuestions
    from refold.console.console_context import BackgroundWork


def run(args: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    with enter_directory(args):
        return _start(args)


def _start(args: Namespace) -> int:
    _ask_about_the_folder(args)
    launch = launch_of(args, attended=True, watched=True)
    if not launch.app.models.has_model_choice():
        from refold.cli.first_run import first_run

        if not first_run(launch.app):
            return 0
        launch = launch_of(args, attended=True, watched=True)
    launch.app.workspace.sandbox.begin()  # it is tried while the rest is loaded
    if _ask_about_mode_and_rules(args, launch):
        launch = launch_of(args, attended=True, watched=True)
    return anyio.run(_run, args, launch)


def _ask_about_the_folder(args: Namespace) -> None:
    """Ask whether to trust the folder, and whether its commands may make namespaces."""
    here, places = settings_of(args), paths(os.environ)
    folders, folder = TrustedFolders(places.folders), here.project.folder
    changes = () if args.trust else find_changed_texts(folder, places, folders)
    offer = TrustOffer(here.project, here.state, here.texts, changes)
    if offer:
        questions = _questions(here)
        anyio.run(questions.ask_for_trust, offer, places)
        _set_first_message(args, questions)
        here = settings_of(args)
    # Once in each folder, whether the setting that lets commands make them counts there.
    if here.settings.sandbox.user_namespaces and not folders.has_namespaces(folder):
        questions = _questions(here)
        if not anyio.run(questions.ask_for_namespaces, folder, folders):
            args.user_namespaces = False
        _set_first_message(args, questions)


def _ask_about_mode_and_rules(args: Namespace, launch: Launch) -> bool:
    """Ask for the mode, once, and about rules of Claude Code. True if settings may be new."""
    if args.script or args.replay:  # no model that could do harm
        return False
    here, places = settings_of(args), paths(os.environ)
    folders, folder = TrustedFolders(places.folders), here.project.folder
    asks_mode = (
        "permission_mode" not in here.loaded.origins
        and launch.app.workspace.sandbox.confines
    )
    rules = None
    if os.path.lexists(os.path.join(folder, ".claude")):
        from refold.cli.start_questions import unseen_rules

        rules = unseen_rules(folder, folders)
    if not (asks_mode or rules):
        return False
    questions = _questions(here)
    anyio.run(
        questions.ask_about_work, places if asks_mode else None, folder, rules, folders
    )
    _set_first_message(args, questions)
    return True


def _questions(here: FolderSettings) -> "StartQuestions":
    from refold.cli.start_questions import start_questions

    return start_questions(here)


def _set_first_message(args: Namespace, questions: "StartQuestions") -> None:
    """Send what was typed at the questions as the first message."""
    args.text = "\n".join(filter(None, (args.text, *questions.messages)))


Converse: TypeAlias = Callable[
    [Session, str, Sequence[ImageData], str | None, "BackgroundWork | None"], Awaitable[int]
]


def line_terminal() -> Converse:
    from refold.terminal.run import run

    return run


def full_screen() -> Converse:
    from refold.tui.app import check_terminal, run

    check_terminal(os.environ)
    return run


async def _run(args: Namespace, launch: Launch) -> int:
    try:
        if launch.app.makes_notes:  # what an earlier process could not finish
            start_worker([launch.app.project_memory], os.environ)
        text, typed = await launch.expand(args.text, args.text)
        session = Session(launch, await open_or_resume(launch, args))
        converse = (
            full_screen if session.settings.terminal.display == "full" else line_terminal
        )
        beside = (
            partial(_start_due_schedules, args.script) if launch.app.options.keep else None
        )
        return await converse()(session, text, images(args), typed, beside)
    finally:
        with anyio.CancelScope(shield=True):  # otherwise nothing would close what is open
            await launch.aclose()
        launch.finish_notes()


async def _start_due_schedules(script: str | None, say: Callable[[str], None]) -> None:
    from refold.client.due_schedules import run_due_schedules

    await run_due_schedules(os.environ, script, say)
