"""What a session that is taken up has of before: where it works, and what was chosen in it.

What there is no more is replaced by what holds for a new one, and the person is told. What
the command line says now wins. That everything runs unasked is never taken over.
"""

import os
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from refold.cli.out import complain
from refold.cli.sessions.waiting import Waiting
from refold.cli.standing import here
from refold.config.paths import paths
from refold.errors import BadInput
from refold.hall.app import App
from refold.journal.events import ModelChosen
from refold.journal.home import Home
from refold.journal.whereabouts import whereabouts
from refold.session.session import Session
from refold.values.rights import Mode
from refold.views.escape import on_one_line

_CALMED = (
    "everything ran unasked in this session (bypass); it does not any more, unless {way}"
)


class SessionDirectory(NamedTuple):
    """`roots` are the further directories of the workspace."""

    directory: Path
    roots: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


def place_of(found: Namespace) -> SessionDirectory:
    """Where the session works: one that is taken up stays where it was.

    What was said in it, and the paths in it, are about that place. `found.resume` is an id
    from then on.
    """
    home = Home(paths(os.environ).data / "sessions")
    if found.resume is None:
        newest = home.newest_of(here()) if found.continue_ else None
        if newest is None:
            return SessionDirectory(found.workspace or here())
        found.resume = newest.id
    session = home.named(found.resume, here(), Waiting())
    found.resume = session.id
    return stands(session.path, here())


def stands(session: Path, otherwise: Path) -> SessionDirectory:
    """Where a session works, by its journal; `otherwise`, where that is gone."""
    stood = whereabouts(session)
    roots = tuple(Path(each) for each in stood.roots)
    gone = [str(each) for each in roots if not each.is_dir()]
    notices = [
        f"{on_one_line(each)} belonged to this session and is gone: it goes on without"
        for each in gone
    ]
    directory = Path(stood.directory or otherwise)
    if not directory.is_dir():
        said = on_one_line(str(directory))
        directory = otherwise
        notices.insert(
            0, f"{said}, where this session worked, is gone: it goes on in {directory}"
        )
    there = tuple(each for each in roots if each.is_dir() and each != directory)
    return SessionDirectory(directory, there, tuple(notices))


async def choose_again(
    app: App, session: Session, found: Namespace, model: str, mode: Mode | None
) -> None:
    """Do what the command line says of a session that goes on, and mend the rest of it."""
    inbox = session.inbox
    if model:
        await inbox.choose_model(app.models.full(model))
    if found.effort:
        await inbox.choose_effort(found.effort)
    if mode:
        await inbox.set_mode(mode)
    elif session.calmed:
        _tell(_CALMED.format(way="--yolo is given again"))
    if found.agent:
        from refold.agents.choosing import choose

        await choose(inbox, app.agents, found.agent)
    if found.max_budget_usd and (chosen := session.view.rights.budget) is not None:
        budget = replace(chosen, dollars=found.max_budget_usd)
        await inbox.set_budget(budget)  # what was chosen in it would win
    if not model and (notice := await _with_a_model(app, session)):
        _tell(notice)


async def mended(app: App, session: Session) -> tuple[str, ...]:
    """The same for a session that a terminal goes over to, with what is to be told."""
    way = "/approval off says so again"
    calmed = _CALMED.format(way=way) if session.calmed else ""
    return tuple(filter(None, (calmed, await _with_a_model(app, session))))


async def _with_a_model(app: App, session: Session) -> str:
    """Go on with the model of new sessions, where that of this one cannot be asked.

    Why that is so, in a sentence; "" where it is not.
    """
    if app.models.scripted:
        return ""
    was = app.model_of(session.view)
    why = await anyio.to_thread.run_sync(_unusable, app, was)
    if not why:
        return ""
    new = app.models.default()
    if new == was or not new or await anyio.to_thread.run_sync(_unusable, app, new):
        return ""  # the door says why it cannot begin, or the turn does
    await session.record(ModelChosen(new), kept=True, by="journal")
    return f"{was}, the model of this session, cannot be asked: {why}. Now it is {new}"


def _unusable(app: App, model: str) -> str:
    """Why this model cannot be asked anything, or ""."""
    try:
        app.models.check(model)
    except BadInput as error:
        return str(error)
    return ""


def _tell(words: str) -> None:
    complain(on_one_line(words))
