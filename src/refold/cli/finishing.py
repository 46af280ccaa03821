"""Notes of sessions that were left are made in a process of its own, which nobody waits for.

`leave` starts it and returns at once. It ends by itself within a bound, whatever its
provider does; what it could not do stays put down, and the next start tries again.
`REFOLD_NO_BACKGROUND` keeps any such process from being started.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import anyio

from refold import programs
from refold.cli.titling import find_title
from refold.config.here import load_here
from refold.config.paths import paths
from refold.engine.world import Mind
from refold.errors import RefoldError
from refold.hall.app import App
from refold.hall.connections import SCRIPT, SMALL
from refold.hall.remembering import Remembering
from refold.hall.wishes import Wishes
from refold.journal.fold import View
from refold.journal.home import Home

NO_BACKGROUND = "REFOLD_NO_BACKGROUND"
LONGEST = 120  # seconds that the process lives, at most
MOST = 5  # sessions that it reads
_EACH = 60.0  # seconds for one of them
_MOMENT = 0.2  # seconds that leaving may take longer


def leave(
    remembering: Remembering, environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    """Have the sessions that are put down read, if there are any. The process, if it began.

    Costs a moment and waits for nothing. To be called when the session is closed.
    """
    if environ.get(NO_BACKGROUND) or not remembering.pending.sessions():
        return None
    if not sys.executable:
        return None
    # -P: nothing that lies in a directory somewhere is taken for a module of ours.
    words = [sys.executable, "-P", "-m", "refold", "memory", "finish"]
    try:
        started = programs.start(
            [*words, remembering.directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**environ, NO_BACKGROUND: "1"},
            start_new_session=True,
        )
    except OSError:  # no more processes: the next start does it
        return None
    Thread(target=started.wait, daemon=True).start()  # so that it leaves no zombie
    return started


def note_down(home: Home) -> None:
    """Have the catalogue know what was said, so that who lists next need not wait."""
    with suppress(RefoldError):  # whoever asks it is told
        home.catalogue().freshen(_MOMENT)


def finish(directory: str) -> int:
    """The process itself: read what is put down, silently."""
    signal.alarm(LONGEST)  # ends it even where nothing else would
    with suppress(OSError):
        os.nice(10)
    with suppress(RefoldError):
        app, remembering = opened(Path(directory), os.environ)
        if app.settings.memory:
            anyio.run(_finish, app, remembering)
    return 0


async def _finish(app: App, remembering: Remembering) -> None:
    pending, read = remembering.pending, set[str]()
    try:
        with pending.alone() as ours:
            while ours and len(read) < MOST:
                left = [each for each in pending.sessions() if each not in read]
                if not left:
                    break
                read.add(left[0])
                with suppress(RefoldError), anyio.move_on_after(_EACH):
                    await _read(app, remembering, left[0])
    finally:
        await app.aclose()


async def _read(app: App, remembering: Remembering, session: str) -> None:
    """Make notes of one session. It is struck off unless this raises."""
    pending = remembering.pending

    def aide(view: View) -> Mind | None:
        return aide_for(app, view) if pending.try_(session) else None

    if remembering.home.path(session).is_dir():  # else it was deleted, or never begun
        await remembering.learn_of(session, aide)
        await find_title(app, session, partial(aide_for, app))
    pending.done(session)


def aide_for(app: App, view: View, *, asked: bool = False) -> Mind | None:
    """Who makes notes of a session: the small model that is set, or the one it had.

    So what was said goes to nobody who was not chosen. Unless a person `asked` for it,
    scripts are not used up for notes, nor this machine for an embedded model.
    """
    own, named = view.talk.briefed.model, app.wishes.model
    if named:
        return _aide(app, app.models.check(named))
    name = app.models.full("small") if app.settings.models.small else own
    if not name or own.startswith(SCRIPT) or (name.startswith(SMALL) and not asked):
        return None
    return _aide(app, name)


def _aide(app: App, name: str) -> Mind:
    return Mind(app.models.provider(name), name, 0, app.models.price)


def opened(
    directory: Path, environ: Mapping[str, str], model: str = ""
) -> tuple[App, Remembering]:
    """The settings and the memory that hold in a directory. Raises `BadInput`.

    Notes are made by `model`, if one is named.
    """
    places = paths(environ)
    here = load_here(directory, places, environ, {})
    wishes = Wishes(directory=directory, model=model, attended=False)
    app = App(here.settings, places, environ, wishes)
    return app, app.remembering
