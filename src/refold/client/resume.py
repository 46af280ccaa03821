"""Restores what a resumed session had before: its working directory, model and agent.

What no longer exists is replaced by what a new session would have, and a sentence says so.
The mode `bypass` is never restored.
"""

from pathlib import Path

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.errors import BadInput
from refold.journal.events.kinds import ModelChosen
from refold.journal.session_index import SessionIndex
from refold.session.session import Session
from refold.views.escape import escape_to_one_line

LEFT_BYPASS = "this session was in mode bypass; it asks again now, unless {way}"


class SessionDirectory(Struct, frozen=True):
    """`roots` are the further directories of the workspace."""

    directory: Path
    roots: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


def find_directory(
    sessions: SessionIndex, session: str, otherwise: Path
) -> SessionDirectory:
    """The directory in which a session works, by its journal.

    If it no longer exists, it is `otherwise`.
    """
    stood = sessions.directories(session)
    roots = tuple(Path(root) for root in stood.roots)
    gone = [str(root) for root in roots if not root.is_dir()]
    notices = [
        f"{escape_to_one_line(root)} belonged to this session and does not exist any more: it continues without"
        for root in gone
    ]
    directory = Path(stood.directory or otherwise)
    if not directory.is_dir():
        directory_text = escape_to_one_line(str(directory))
        directory = otherwise
        notices.insert(
            0,
            f"{directory_text}, where this session worked, does not exist any more: it continues in {directory}",
        )
    existing = tuple(root for root in roots if root.is_dir() and root != directory)
    return SessionDirectory(directory, existing, tuple(notices))


async def replace_missing(app: App, session: Session) -> tuple[str, ...]:
    """Replace what cannot be restored in a session that the user switched to.

    Returns notices about the replacements.
    """
    way = "the mode is chosen again"
    left = LEFT_BYPASS.format(way=way) if session.left_bypass else ""
    return tuple(filter(None, (left, await replace_unusable_model(app, session))))


async def replace_unusable_model(app: App, session: Session) -> str:
    """Use the model of new sessions if this session's model cannot be used.

    Returns a sentence with the reason; "" if nothing was replaced.
    """
    if app.models.has_script:
        return ""
    old = app.model_of(session.view)
    why = await anyio.to_thread.run_sync(_model_problem, app, old)
    if not why:
        return ""
    new = app.models.default()
    if new == old or not new or await anyio.to_thread.run_sync(_model_problem, app, new):
        return ""  # the error is reported when a turn begins
    await session.record(ModelChosen(new), kept=True, author="journal")
    return f"{old}, the model of this session, is not available: {why}. Using {new}"


def _model_problem(app: App, model: str) -> str:
    """Why this model cannot be used, or ""."""
    try:
        app.models.check(model)
    except BadInput as error:
        return str(error)
    return ""
