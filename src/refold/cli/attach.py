"""`refold attach [ID]`: joins a session that is open in another process, or that workers run.

If the process cannot be joined, its session is shown from the journal, as `refold stream` does.
`client.remote_session` connects to the other process. `client.nodes.followed_session` connects
to workers through their database. `cli.attach_to_service` joins through the address of a
service.
"""

import os
from argparse import ArgumentParser, Namespace
from contextlib import AbstractAsyncContextManager

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_index import session_index
from refold.cli.interactive import full_screen, line_terminal
from refold.cli.launch import command_names
from refold.cli.session_argument import find_session_id
from refold.client.launch import Launch
from refold.client.remote_session import attach
from refold.client.resume import find_directory
from refold.client.session import Session
from refold.client.stored_sessions import StoredSessions
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, login_name, paths
from refold.errors import BadInput, Held, RefoldError
from refold.headless.streams import print_error
from refold.journal.events.kinds import LAST_SESSION
from refold.journal.session_index import SessionIndex

_URL_STARTS = ("http://", "https://")
_MISSING_EXTRA = (
    "a session of a service is joined with the package websockets, which is not installed here: "
    "pip install 'refold[server]', or, in a checkout, uv sync --extra server"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", default=LAST_SESSION, metavar="ID",
        help="id or name of a session, or a prefix (default: the newest of this directory); or the address "
        "of a service or of its page, with your token in REFOLD_TOKEN")  # fmt: skip
    parser.add_argument("session", nargs="?", default="", metavar="SESSION",
        help="after an address: the session there (default: choose from a list)")  # fmt: skip


def run(args: Namespace) -> int:
    """Join the session that `args` name, here or at a service. Return the exit code."""
    if args.session and not args.id.startswith(_URL_STARTS):
        raise BadInput(
            f"{args.id!r} is not an address, so it names the only session: leave out {args.session!r}"
        )
    return join(args.id, args.session)


def join(id_: str, session: str = "", *, full: bool = False) -> int:
    """Join the session `id_` of this machine, or the session `session` of a service.

    For a service, `id_` is its address. Return the exit code. With `full`, use the full screen,
    whatever the settings say.
    """
    if id_.startswith(_URL_STARTS):
        try:
            from refold.cli.attach_to_service import join_through_address
        except ImportError as error:
            raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error
        return join_through_address(id_, session, full=full)
    return _join_here(id_, full=full)


def _join_here(id_: str, *, full: bool) -> int:
    """Join a session of this machine, or of the database that this machine uses.

    Return the exit code.
    """
    places = paths(os.environ)
    index = session_index(places)
    session = find_session_id(index, id_)
    # a claim says which worker runs the session
    if places.sessions and anyio.run(index.store(session).read_claim):
        return _join_workers(index, session, full=full)
    holder = StoredSessions(index).holder(session)
    if not holder:
        raise BadInput(
            f"{session} is not open in any process: refold -r {session} resumes it"
        )
    launch = launch_to_join(index, session)
    try:
        return anyio.run(_join, launch, attach(launch, session), full)
    except Held:
        print_error(
            f"{session} is open in {holder}, which cannot be joined; its journal is followed"
        )
        return _show_stream(session)


def launch_to_join(index: SessionIndex, session: str) -> Launch:
    """Return a start in the directory of `session`, with the settings that apply there."""
    places = paths(os.environ)
    place = find_directory(index, session, current_directory())
    loaded = load_folder_settings(place.directory, places, os.environ, {}, trust=False)
    options = LaunchOptions(
        directory=place.directory, more_roots=place.roots, given=loaded.limits_of_flags
    )
    return Launch(App(loaded.settings, places, os.environ, options), commands=command_names)


def _join_workers(index: SessionIndex, id_: str, *, full: bool) -> int:
    """Join a session that a worker runs, through the database. Return the exit code."""
    from refold.cli.nodes import find_services
    from refold.client.nodes.followed_session import attach_through_database

    launch = launch_to_join(index, id_)
    joined = attach_through_database(launch, id_, find_services(), login_name())
    return anyio.run(_join, launch, joined, full)


async def _join(
    launch: Launch, joined: AbstractAsyncContextManager[Session], full: bool
) -> int:
    """Converse in the joined session, and close `launch` at the end. Return the exit code."""
    try:
        async with joined as session:
            is_full = full or session.settings.terminal.display == "full"
            converse = full_screen() if is_full else line_terminal()
            # without a first message, its images, its typed part, and background work
            return await converse(session, "", (), None, None)
    finally:
        with anyio.CancelScope(shield=True):
            await launch.aclose()


def _show_stream(id_: str) -> int:
    """Print the events of a session as they are recorded, until Ctrl+C. Return an exit code."""
    from refold.cli import stream

    return stream.run(
        Namespace(node=id_, session="last", after=None, follow=True, json=False)
    )
