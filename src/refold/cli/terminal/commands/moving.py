"""/cd, /add-dir and /worktree: where this session works, and the ways to elsewhere.

Which directory is meant is found out here. How a session is taken up in it is the business
of who opened the terminal (`Surroundings.go_on`).
"""

import os
from collections.abc import Sequence

import anyio

from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.greeting import heading, shown
from refold.cli.terminal.reading import Key
from refold.cli.terminal.surroundings import Way
from refold.errors import BadInput
from refold.values.below import below
from refold.views.styled import line


async def cd(here: Conversation, rest: str) -> None:
    """Go on in another directory; without one, say where it works."""
    about = here.session.view.about
    if not rest:
        _where(here)
        return
    directory = await anyio.to_thread.run_sync(_meant, "/cd", rest, about.directory)
    if directory == about.directory:
        here.paper.say(f"It works in {shown(directory)} already.", "dim")
        return
    await _go(here, Way(about.id, directory))


async def add_dir(here: Conversation, rest: str) -> None:
    """One more directory for the workspace; without one, say which there are."""
    about = here.session.view.about
    if not rest:
        _where(here)
        return
    directory = await anyio.to_thread.run_sync(_meant, "/add-dir", rest, about.directory)
    if any(below(directory, root) for root in (about.directory, *about.roots)):
        here.paper.say(f"{shown(directory)} belongs to the workspace already.", "dim")
        return
    await _go(here, Way(about.id, added=(directory,)))


async def worktree(here: Conversation, rest: str) -> None:
    await _go(here, Way(here.session.view.about.id, tree=rest))


async def agreed(here: Conversation, rows: Sequence[str], question: str) -> bool:
    """Does the person say yes to what stands in these rows? Raises where they say nothing."""
    here.paper.gap()
    for row in rows:
        here.paper.say(row)
    found = await here.reading.choice(line(f"{question} y/n ", "strong"), "yn")
    if isinstance(found, Key):
        raise BadInput("It goes on where it was.")
    if found == "y":
        return True
    here.paper.say("They do not count.", "dim")
    return False


async def _go(here: Conversation, way: Way) -> None:
    notices = await here.go_on(way)
    heading(here.session.view, here.around, here.paper)
    _more(here)
    for notice in notices:
        here.paper.say(notice, "warn")
    if not here.session.idle:
        await here.go()


def _where(here: Conversation) -> None:
    here.paper.say(shown(here.session.view.about.directory))
    _more(here)


def _more(here: Conversation) -> None:
    for root in here.session.view.about.roots:
        here.paper.say(f"and {shown(root)}", "dim")


def _meant(said: str, text: str, directory: str) -> str:
    """The real path of the directory that is named. Raises `BadInput` if there is none."""
    found = os.path.join(directory, os.path.expanduser(text))
    try:
        real = os.path.realpath(found)
        is_there, is_folder = os.path.lexists(found), os.path.isdir(real)
    except ValueError as error:  # no name of anything
        raise BadInput(f"{said} {text!r}: {error}") from error
    if not is_folder:
        why = "is no directory" if is_there else "is not there"
        raise BadInput(f"{said} {text!r}: {found} {why}")
    if not os.access(real, os.R_OK | os.X_OK):
        raise BadInput(f"{said} {text!r}: you may not enter {real}")
    try:
        real.encode()
    except UnicodeEncodeError as error:  # and nobody could find it by what stands there
        raise BadInput(
            f"{said} {text!r}: {real!r} cannot be written into a journal, for its name is "
            "no UTF-8"
        ) from error
    return real
