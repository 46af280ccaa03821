"""`refold attach URL [ID]`: joins a session of a service or server through its address.

The user's token is read from REFOLD_TOKEN, or typed without echo, because a token on the
command line would be stored in the shell's history. `client.service` joins the session.
`attach` calls this module if its argument is an address.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_index import session_index
from refold.cli.auth import read_typed_secret
from refold.cli.interactive import full_screen, line_terminal
from refold.cli.launch import command_names
from refold.client.launch import Launch
from refold.client.service.joined_session import attach_through_address
from refold.client.service.service_client import (
    ServiceAddress,
    ServiceClient,
    parse_service_url,
)
from refold.config.folder_settings import FolderSettings, load_folder_settings
from refold.config.paths import current_directory, login_name, paths
from refold.config.settings import Terminal as TerminalSettings
from refold.console.list_prompt import pick
from refold.errors import BadInput
from refold.journal.catalogue.session_card import Card, card_label
from refold.journal.state.session_info import SessionInfo
from refold.views.session_list import session_picker

TOKEN_VARIABLE = "REFOLD_TOKEN"
_MAX_NAMED = 5


class _Target(Struct, frozen=True):
    """The session of a service to join, and how to show it."""

    address: ServiceAddress
    session: str  # as the user named it, or ""
    full: bool  # whether the full screen was asked for


def join_through_address(url: str, session: str = "", *, full: bool = False) -> int:
    """Join a session of the service at `url`. Return the exit code.

    `session` or the URL names the session. If neither does, the user picks a session from a
    list.
    """
    address = parse_service_url(url)
    if session and address.session and session != address.session:
        raise BadInput(
            f"{url!r} names the session {address.session!r}, and {session!r} is another: give one"
        )
    target = _Target(address, session or address.session, full)
    loaded = load_folder_settings(
        current_directory(), paths(os.environ), os.environ, {}, trust=False
    )
    return anyio.run(_join, target, _read_token(address.place.origin), loaded)


def _read_token(origin: str) -> str:
    """Return the user's token. Raises `BadInput` if there is none, or if it is malformed."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token and sys.stdin.isatty():
        token = read_typed_secret(f"Your token for {origin} (it is not shown): ")
    if not token:
        raise BadInput(
            f"{TOKEN_VARIABLE} holds no token: make one at {origin}, and set the variable"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise BadInput(
            f"the token in {TOKEN_VARIABLE} holds a blank or another character that no token has: copy "
            "it again"
        )
    return token


async def _join(target: _Target, token: str, loaded: FolderSettings) -> int:
    """Join a session of the service. Return the exit code; 0 if the user picks no session."""
    places = paths(os.environ)
    client = ServiceClient(target.address.place, token, os.environ)
    # An empty home, because the sessions of this machine do not belong to the service.
    with tempfile.TemporaryDirectory(prefix="refold-attach-") as empty:
        options = LaunchOptions(
            directory=current_directory(),
            sessions=session_index(replace(places, data=Path(empty), sessions="")),
            given=loaded.limits_of_flags,
        )
        try:
            await client.check()
            id_ = await _find_session(client, target.session, loaded.settings.terminal)
            if not id_:
                return 0
            app = App(loaded.settings, places, os.environ, options)
            return await _converse(Launch(app, commands=command_names), client, id_, target)
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()


async def _converse(
    launch: Launch, client: ServiceClient, id_: str, target: _Target
) -> int:
    """Converse in the session `id_` of the service. Return the exit code."""
    try:
        async with attach_through_address(launch, client, id_, login_name()) as joined:
            session, sink = joined

            async def report_outages(say: Callable[[str], None]) -> None:
                sink.report = say
                await anyio.sleep_forever()

            is_full = target.full or session.settings.terminal.display == "full"
            converse = full_screen() if is_full else line_terminal()
            # without a first message, its images and its typed part
            return await converse(session, "", (), None, report_outages)
    finally:
        with anyio.CancelScope(shield=True):
            await launch.aclose()


async def _find_session(
    client: ServiceClient, named: str, terminal: TerminalSettings
) -> str:
    """Return the id of the session `named`. If `named` is "", the user chooses a session.

    If there is only one session, return it without asking. Return "" if the user chooses none.
    """
    if named:
        return await client.find_session(named)
    cards = [
        Card(one.id, SessionInfo(title=one.title, name=one.name), one.changed)
        for one in await client.sessions()
    ]
    if not cards:
        raise BadInput(f"{client.origin} has no session for you yet: begin one on its page")
    if len(cards) == 1:
        return cards[0].id
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(_name_newest(client.origin, cards))
    from refold.terminal.this_terminal import open_terminal

    printer, reader = open_terminal(display=terminal.display, theme=terminal.theme)
    picker = replace(session_picker(cards, time.time()), title="Join which session?")
    answer = await pick(printer, reader, picker)
    return answer.selection.id if answer and answer.selection else ""


def _name_newest(origin: str, cards: Sequence[Card]) -> str:
    few = "\n".join(f"  {card_label(card)}" for card in cards[:_MAX_NAMED])
    return f"{origin} has several sessions, so name one after its address; the newest are\n{few}"
