"""A session in a terminal: open it, hand it to the line terminal, and come back."""

import os
import sys
from argparse import Namespace
from functools import partial

import anyio

from refold.app import App
from refold.cli.confirming import said_yes
from refold.cli.opening import app_of, open_session, pictures, settings_of
from refold.cli.terminal.run import run as converse
from refold.cli.terminal.surroundings import Surroundings
from refold.config.folders import Folders
from refold.config.paths import paths
from refold.config.project import in_words
from refold.config.remember import remember
from refold.journal.fold import View
from refold.session.session import Session

_SINCE = {"changed": ", changed since you saw them"}
MENDED = "the journal was damaged at its end; lost: {lost}"


def run(found: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    _ask_about_the_folder(found)
    app = app_of(found, attended=True)
    if not app.models.default():
        from refold.cli.begin import first_run

        if not first_run(app.paths):
            return 0
        app = app_of(found, attended=True)
    return anyio.run(_run, found, app)


def _ask_about_the_folder(found: Namespace) -> None:
    """Show the settings that lie in the folder, once, and ask whether they count."""
    here = settings_of(found)
    if here.state not in ("new", "changed"):
        return
    sys.stdout.write(f"Settings of this folder{_SINCE.get(here.state, '')}:\n\n")
    sys.stdout.write("".join(f"  {line}\n" for line in in_words(here.project)))
    sys.stdout.write("\nTrust these settings? They count until they change. [y/N] ")
    sys.stdout.flush()
    if said_yes():
        Folders(paths(os.environ).folders).trust(here.project)
    else:
        sys.stdout.write("They do not count.\n")


async def _run(found: Namespace, app: App) -> int:
    try:
        id_, session = await open_session(app, found)
        async with session:
            here = around(app, id_, session.view, session.lost)
            return await converse(session, here, found.text, pictures(found))
    finally:
        await app.aclose()


def around(app: App, id_: str, view: View, lost: str = "") -> Surroundings:
    """What the terminal may use of the app."""

    async def choose(name: str) -> str:
        # A key may have to be fetched, or a person asked for it.
        return await anyio.to_thread.run_sync(app.models.check, name)

    async def another() -> Session:
        _, session = await app.start()
        return session

    return Surroundings(
        model=app.model_of(view),
        models=app.models.names(),
        choose_model=choose,
        remember=partial(remember, app.paths.settings),
        new_session=another,
        tools=app.tools,
        rules=app.rules,
        effort=app.settings.effort,
        mode=app.settings.permission_mode,
        facts=app.facts,
        unread=app.unread,
        always=app.workspace.always,
        saved_in=str(app.paths.folders),
        snapshots=lambda view: app.snapshots(view.about.id),
        history=app.paths.state / "history",
        notices=(*app.notices(), *((MENDED.format(lost=lost),) if lost else ())),
        come_back=f"refold -c   (or refold -r {id_})",
    )
