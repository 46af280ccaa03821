"""A session in a terminal: open it, hand it to the line terminal, and come back."""

from argparse import Namespace
from functools import partial

import anyio

from refold.app import App
from refold.cli.opening import app_of, open_session, pictures
from refold.cli.terminal.run import run as converse
from refold.cli.terminal.surroundings import Surroundings
from refold.config.remember import remember
from refold.journal.fold import View
from refold.session.session import Session

UNPROTECTED = (
    "commands run with your own rights: there is no sandbox yet, so read what you allow"
)

MENDED = "the journal was damaged at its end; lost: {lost}"


def run(found: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    app = app_of(found, attended=True)
    if not app.models.default():
        from refold.cli.begin import first_run

        if not first_run(app.paths):
            return 0
        app = app_of(found, attended=True)
    return anyio.run(_run, found, app)


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
        outside=app.outside,
        names=app.names,
        history=app.paths.state / "history",
        notices=(UNPROTECTED, *((MENDED.format(lost=lost),) if lost else ())),
        come_back=f"refold -c   (or refold -r {id_})",
    )
