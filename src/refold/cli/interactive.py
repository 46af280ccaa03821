"""A session in a terminal: open it, hand it to the line terminal, and come back."""

from argparse import Namespace

import anyio

from refold.cli.opening import app_of, open_session
from refold.cli.terminal.run import run as converse


def run(found: Namespace) -> int:
    return anyio.run(_run, found)


async def _run(found: Namespace) -> int:
    app = app_of(found, attended=True)
    try:
        if not app.models.default():
            from refold.cli.choosing import choose_model

            chosen = await choose_model(app)
            if chosen is None:
                return 0
            app = app_of(found, attended=True)
        _, session = await open_session(app, found)
        return await converse(session, app, found.text)
    finally:
        await app.aclose()
