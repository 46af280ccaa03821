"""A session in a terminal: open it, hand it to the line terminal, and come back."""

import os
import sys
from argparse import Namespace

import anyio

from refold.cli.confirming import said_yes
from refold.cli.expanding import meant
from refold.cli.finishing import leave
from refold.cli.opening import app_of, as_settings, open_session, pictures, settings_of
from refold.cli.rights.trusting import Offer
from refold.cli.staying import Stay
from refold.cli.terminal.run import run as converse
from refold.cli.worktree import WorkingTrees, in_a_worktree
from refold.config.folders import Folders
from refold.config.paths import paths


def run(found: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    with in_a_worktree(found) as trees:
        return _opened(found, trees)


def _opened(found: Namespace, trees: WorkingTrees) -> int:
    _ask_about_the_folder(found)
    app = app_of(found, attended=True)
    if not app.models.default():
        from refold.cli.first.begin import first_run

        if not first_run(app.paths, app.settings.terminal):
            return 0
        app = app_of(found, attended=True)
    app.workspace.sandbox.begin()  # it is tried while the rest is loaded
    return anyio.run(_run, found, Stay(app, as_settings(found), trees))


def _ask_about_the_folder(found: Namespace) -> None:
    """Show the settings of the folder and what tells the model what to do, and ask."""
    here = settings_of(found)
    offer = Offer(here.project, here.state, here.texts)
    if not offer:
        return
    sys.stdout.write("".join(f"{line}\n" for line in offer.shown()))
    sys.stdout.write(f"\n{offer.question} [y/N] ")
    sys.stdout.flush()
    if said_yes():
        offer.take(Folders(paths(os.environ).folders))
    else:
        sys.stdout.write("They do not count.\n")


async def _run(found: Namespace, stay: Stay) -> int:
    app = stay.app
    try:
        if app.learns:
            leave(app.remembering, os.environ)  # what an earlier one could not finish
        words, typed = meant(found.text, found.text, app)
        _, session = await open_session(app, found)
        async with session:
            here = stay.around(session)
            return await converse(session, here, words, pictures(found), typed)
    finally:
        await stay.aclose()
