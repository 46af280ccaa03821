"""`refold attach [ID]`: join a session that is open in another process.

Where that process cannot be joined, the session is shown from its journal as that grows.
The handle is made in `client.remote_session`.
"""

import os
from argparse import Namespace

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_index import session_index
from refold.cli.interactive import full_screen, line_terminal
from refold.cli.launch import command_names
from refold.cli.session_argument import add_session_argument, find_session_id
from refold.client.launch import Launch
from refold.client.remote_session import attach
from refold.client.resume import find_directory
from refold.client.stored_sessions import StoredSessions
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput, Held
from refold.headless.streams import print_error
from refold.journal.session_index import SessionIndex

add_arguments = add_session_argument


def run(args: Namespace) -> int:
    return join(args.id)


def join(id_: str, *, full: bool = False) -> int:
    """Join the session with this id. `full`: on the full screen, whatever the settings say."""
    places = paths(os.environ)
    index = session_index(places)
    session = find_session_id(index, id_)
    holder = StoredSessions(index).holder(session)
    if not holder:
        raise BadInput(
            f"{session} is not open in any process: refold -r {session} resumes it"
        )
    launch = launch_to_join(index, session)
    try:
        return anyio.run(_join, launch, session, full)
    except Held:
        print_error(
            f"{session} is open in {holder}, which cannot be joined; its journal is followed"
        )
        return _show_stream(session)


def launch_to_join(index: SessionIndex, session: str) -> Launch:
    """A start where this session works, with the settings that hold there."""
    places, place = paths(os.environ), find_directory(index, session, current_directory())
    loaded = load_folder_settings(place.directory, places, os.environ, {}, trust=False)
    options = LaunchOptions(
        directory=place.directory, more_roots=place.roots, given=loaded.limits_of_flags
    )
    return Launch(App(loaded.settings, places, os.environ, options), commands=command_names)


async def _join(launch: Launch, id_: str, full: bool) -> int:
    try:
        async with attach(launch, id_) as session:
            full = full or session.settings.terminal.display == "full"
            converse = full_screen if full else line_terminal
            return await converse()(session, "", (), None, None)
    finally:
        with anyio.CancelScope(shield=True):
            await launch.aclose()


def _show_stream(id_: str) -> int:
    from refold.cli import stream

    return stream.run(
        Namespace(node=id_, session="last", after=None, follow=True, json=False)
    )
