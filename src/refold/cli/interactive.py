"""Runs a session in the line terminal or in the full screen."""

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
    """Ask the questions before a session, and run it. Return the exit code."""
    with enter_directory(args):
        return _start(args)


def _start(args: Namespace) -> int:
    """Ask about the folder and the mode, and run the session. Return the exit code.

    Settings are loaded again after each answer that may change them.
    """
    _ask_about_folder(args)
    launch = launch_of(args, attended=True, watched=True)
    if not launch.app.models.has_model_choice():
        from refold.cli.first_run import first_run

        if not first_run(launch.app):
            return 0
        launch = launch_of(args, attended=True, watched=True)
    launch.app.workspace.sandbox.begin()  # the sandbox is tested while the rest is loaded
    if _ask_about_mode_and_rules(args, launch):
        launch = launch_of(args, attended=True, watched=True)
    return anyio.run(_run, args, launch)


def _ask_about_folder(args: Namespace) -> None:
    """Ask whether to trust the folder, and whether its commands may make namespaces."""
    folder_settings = settings_of(args)
    folder = folder_settings.project.folder
    places = paths(os.environ)
    trusted_folders = TrustedFolders(places.folders)
    changes = () if args.trust else find_changed_texts(folder, places, trusted_folders)
    offer = TrustOffer(
        folder_settings.project, folder_settings.state, folder_settings.texts, changes
    )
    has_news = bool(offer)  # there is something that the user has not trusted yet
    if has_news:
        questions = _questions(folder_settings)
        anyio.run(questions.ask_for_trust, offer, places)
        _set_first_message(args, questions)
        folder_settings = settings_of(args)
    # Ask once in each folder whether the setting that lets commands make namespaces applies.
    permits_namespaces = folder_settings.settings.sandbox.user_namespaces
    if permits_namespaces and not trusted_folders.has_namespaces(folder):
        questions = _questions(folder_settings)
        if not anyio.run(questions.ask_for_namespaces, folder, trusted_folders):
            args.user_namespaces = False
        _set_first_message(args, questions)


def _ask_about_mode_and_rules(args: Namespace, launch: Launch) -> bool:
    """Ask for the mode and about rules of Claude Code, unless already answered.

    Return whether a question was asked, because its answer may change settings.
    """
    if args.script or args.replay:  # a scripted model can do no harm
        return False
    folder_settings = settings_of(args)
    folder = folder_settings.project.folder
    places = paths(os.environ)
    trusted_folders = TrustedFolders(places.folders)
    asks_mode = (
        "permission_mode" not in folder_settings.loaded.origins
        and launch.app.workspace.sandbox.confines
    )
    rules = None
    if os.path.lexists(os.path.join(folder, ".claude")):
        from refold.cli.start_questions import unseen_rules

        rules = unseen_rules(folder, trusted_folders)
    if not asks_mode and rules is None:
        return False
    questions = _questions(folder_settings)
    # the mode is stored in the user's files; None: do not ask for it
    mode_places = places if asks_mode else None
    anyio.run(questions.ask_about_work, mode_places, folder, rules, trusted_folders)
    _set_first_message(args, questions)
    return True


def _questions(folder_settings: FolderSettings) -> "StartQuestions":
    from refold.cli.start_questions import start_questions

    return start_questions(folder_settings)


def _set_first_message(args: Namespace, questions: "StartQuestions") -> None:
    """Append the messages that the user typed at the questions to the first message."""
    args.text = "\n".join(filter(None, (args.text, *questions.messages)))


Converse: TypeAlias = Callable[
    [Session, str, Sequence[ImageData], str | None, "BackgroundWork | None"], Awaitable[int]
]


def line_terminal() -> Converse:
    """Import the line terminal, and return the function that runs a session in it."""
    from refold.terminal.run import run

    return run


def full_screen() -> Converse:
    """Import the full screen, and return the function that runs a session in it.

    Raises an error if the terminal cannot show the full screen.
    """
    from refold.tui.app import check_terminal, run

    check_terminal(os.environ)
    return run


async def _run(args: Namespace, launch: Launch) -> int:
    """Converse in the terminal until the user leaves. Return the exit code."""
    try:
        # complete notes that an earlier process could not finish
        if launch.app.makes_notes:
            start_worker([launch.app.project_memory], os.environ)
        text, typed = await launch.expand(typed=args.text, message=args.text)
        session = Session(launch, await open_or_resume(launch, args))
        is_full = session.settings.terminal.display == "full"
        converse = full_screen() if is_full else line_terminal()
        background_work = (
            partial(_start_due_schedules, args.script) if launch.app.options.keep else None
        )
        return await converse(session, text, images(args), typed, background_work)
    finally:
        # cancellation must not prevent closing what is open
        with anyio.CancelScope(shield=True):
            await launch.aclose()
        launch.finish_notes()


async def _start_due_schedules(script: str | None, say: Callable[[str], None]) -> None:
    from refold.client.due_schedules import run_due_schedules

    await run_due_schedules(os.environ, script, say)
