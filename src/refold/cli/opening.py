"""Open the session that the command line names. Shared by the doors."""

import os
from argparse import Namespace
from pathlib import Path

from refold.app import App, Wishes
from refold.cli.flags import MODES
from refold.config.load import load
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal.home import Home, started_in
from refold.session.session import Session
from refold.values.rights import Mode


def app_of(found: Namespace, *, attended: bool) -> App:
    """Settings from all their layers, and the wishes of this start."""
    places = paths(os.environ)
    loaded = load(places.settings, os.environ, _as_settings(found))
    wishes = Wishes(
        directory=_workspace(found, places.data / "sessions"),
        more_roots=tuple(_directory(each) for each in found.add_dir),
        attended=attended,
        own_system=found.system_prompt or "",
        more_system=found.append_system_prompt or "",
        script=Path(found.script).expanduser().absolute() if found.script else None,
        keep=not found.no_session,
    )
    return App(loaded.settings, places, os.environ, wishes)


async def open_session(app: App, found: Namespace) -> tuple[str, Session]:
    """The session that -c or -r name, or a new one."""
    if found.resume is None and not found.continue_:
        return await app.start()
    if found.no_session:
        raise BadInput("--no-session keeps no journal, so it cannot go with -c or -r")
    id_ = app.home.find(found.resume).id if found.resume is not None else app.newest()
    session = await app.resume(id_)
    if found.model:
        await session.inbox.choose_model(found.model)
    if mode := _mode(found):
        await session.inbox.set_mode(mode)
    return id_, session


def _as_settings(found: Namespace) -> dict[str, object]:
    """What the command line says about settings; None and () say nothing."""
    return {
        "model": found.model,
        "permission_mode": _mode(found),
        "limits.steps": found.max_turns,
        "permissions.allow": tuple(found.allow),
        "permissions.ask": tuple(found.ask),
        "permissions.deny": tuple(found.deny),
    }


def _mode(found: Namespace) -> Mode | None:
    return "bypass" if found.yolo else MODES.get(found.permission_mode or "")


def _workspace(found: Namespace, sessions: Path) -> Path:
    """Where the session works: one that is taken up stays where it was started.

    What was allowed in it, and the paths in it, are about that place.
    """
    if found.resume is None:
        return here()
    session = Home(sessions).find(found.resume)
    directory = Path(started_in(session.path) or here())
    if not directory.is_dir():
        raise BadInput(
            f"the session {session.id} works in {directory}, which is gone: make that "
            "directory again, or start a new session"
        )
    return directory


def here() -> Path:
    """The current directory. Raises `BadInput` where it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory is gone: change to one that exists"
        ) from error


def _directory(text: str) -> Path:
    found = Path(text).expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"--add-dir {text!r}: there is no such directory")
    return found
