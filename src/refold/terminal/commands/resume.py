"""/resume: switch to another session; the one that is left is closed and kept.

The catalogue finds sessions; `Terminal.switch` opens one.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio

from refold.errors import BadInput
from refold.journal.catalogue.session_card import Card
from refold.journal.events.kinds import LAST
from refold.journal.home import Home
from refold.terminal.greeting import heading
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.surroundings import Surroundings, Way
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.history import recap
from refold.views.styled import line

_WIDEST = 100  # cells
_KEPT_NOWHERE = "no journal is kept here, so there are no other sessions"
_ASK = "number to switch to, Enter to stay:"


def choices(around: Surroundings) -> Iterable[CompletionChoice]:
    """Names or ids; found by id and title, too."""
    for id_, name, title in around.sessions():
        yield CompletionChoice(name or id_, title, f"{id_} {title}")


async def run(here: Terminal, rest: str) -> None:
    if not rest:
        if id_ := await _picked(here):
            await switch_to(here, id_)
        return
    home = home_of(here)
    if rest == LAST:
        await switch_to(here, (await others(here))[0].id)
        return
    found = await anyio.to_thread.run_sync(home.find, rest)
    await switch_to(here, found.id)


async def switch_to_one(here: Terminal, ids: Sequence[str]) -> None:
    """Ask for a number in a list that was printed, and switch to that session."""
    typed = (await here.ask_text(_ASK)).strip()
    if not typed:
        return
    if not (typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(ids)):
        raise BadInput(f"{typed!r} is not a number from 1 to {len(ids)}")
    await switch_to(here, ids[int(typed) - 1])


async def switch_to(here: Terminal, id_: str) -> None:
    if id_ == here.session.view.session.id:
        raise BadInput(f"{id_} is this session")
    left, printer = here.session.view.session, here.printer
    notices = await here.switch(Way(id_))
    view = here.session.view
    called = on_one_line(view.session.name or view.session.title or id_)
    printer.say(f'Resumed "{called}".', "dim")
    if view.session.directory != left.directory:
        heading(view, here.around, printer)
    for notice in notices:
        printer.say(notice, "warn")
    printer.gap()
    printer.lines(recap(view, min(printer.room, _WIDEST), printer.look.sign("prompt")))
    if not here.session.idle:
        printer.line(line("Continuing the interrupted turn.", "dim"))
        await here.settle()


async def others(here: Terminal) -> Sequence[Card]:
    """The other sessions of this directory, the newest first."""
    from refold.cli.sessions.picker import sessions_of

    catalogue, directory = home_of(here).catalogue(), directory_of(here)
    cards = await anyio.to_thread.run_sync(sessions_of, catalogue, directory)
    found = [card for card in cards if card.id != here.session.view.session.id]
    if not found:
        raise BadInput("there is no other session of this directory")
    return found


def home_of(here: Terminal) -> Home:
    if here.around.home is None:
        raise BadInput(_KEPT_NOWHERE)
    return here.around.home


def directory_of(here: Terminal) -> str:
    return here.session.view.session.directory or str(Path.cwd())


async def _picked(here: Terminal) -> str:
    from refold.cli.sessions.picker import choose

    where, own = Path(directory_of(here)), here.session.view.session.id
    return await choose(here.printer, here.reader, home_of(here), where, own)
