"""Restores the working directory, model and agent of a resumed session.

If one of them no longer exists, the value for a new session replaces it, and a notice says
so. The mode `bypass` is never restored.
"""

from pathlib import Path

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.errors import BadInput
from refold.journal.events.setting_events import ModelChosen
from refold.journal.session_index import SessionIndex
from refold.session.session import Session
from refold.views.escape import escape_to_one_line

LEFT_BYPASS = "this session was in mode bypass; it asks again now, unless {way}"


class SessionDirectory(Struct, frozen=True):
    """The `directory` in which a session works, and further directories, `roots`.

    `notices` name directories that no longer exist.
    """

    directory: Path
    roots: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


def find_directory(
    sessions: SessionIndex, session: str, otherwise: Path
) -> SessionDirectory:
    """Return the directory in which a session works, as its journal says.

    If that directory no longer exists, return `otherwise`, with a notice.
    """
    recorded = sessions.directories(session)
    notices = list[str]()
    directory = Path(recorded.directory or otherwise)
    if not directory.is_dir():
        missing = escape_to_one_line(str(directory))
        directory = otherwise
        notices.append(
            f"{missing}, where this session worked, does not exist any more: it continues in {directory}"
        )
    roots = list[Path]()
    for root in map(Path, recorded.roots):
        if not root.is_dir():
            missing = escape_to_one_line(str(root))
            notices.append(
                f"{missing} belonged to this session and does not exist any more: it continues without"
            )
        elif root != directory:
            roots.append(root)
    return SessionDirectory(directory, tuple(roots), tuple(notices))


async def replace_missing(app: App, session: Session) -> tuple[str, ...]:
    """Replace the model of a session that was just opened, if it can no longer be used.

    Return notices: that the model was replaced, and that the session is no longer in mode
    bypass.
    """
    notices = list[str]()
    if session.left_bypass:
        notices.append(LEFT_BYPASS.format(way="the mode is chosen again"))
    if model_notice := await replace_unusable_model(app, session):
        notices.append(model_notice)
    return tuple(notices)


async def replace_unusable_model(app: App, session: Session) -> str:
    """Change a session to the model of new sessions if its own model cannot be used.

    Return a sentence with the reason; "" if its own model can be used.
    """
    if app.models.has_script:
        return ""
    old = app.model_of(session.view)
    why = await anyio.to_thread.run_sync(_model_problem, app, old)
    if not why:
        return ""
    new = app.models.default()
    is_other_model = bool(new) and new != old
    if not is_other_model or await anyio.to_thread.run_sync(_model_problem, app, new):
        return ""  # the turn reports the error when it begins
    await session.record(ModelChosen(new), kept=True, author="journal")
    return f"{old}, the model of this session, is not available: {why}. Using {new}"


def _model_problem(app: App, model: str) -> str:
    """Return why this model cannot be used; "" if it can."""
    try:
        app.models.check(model)
    except BadInput as error:
        return str(error)
    return ""
