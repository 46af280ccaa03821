"""/sessions, /resume and /search: the other sessions of this directory, and ways there.

What is known of them all is the catalogue's business, how one is taken up the app's. Here
a person finds one, and goes over to it; the session that is left is closed and kept.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.greeting import heading
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.surroundings import Surroundings, Way
from refold.errors import BadInput
from refold.journal.home import Home
from refold.journal.naming import LAST
from refold.views.escape import on_one_line
from refold.views.recap import recap
from refold.views.styled import line

if TYPE_CHECKING:
    from refold.journal.catalogue.card import Card
    from refold.journal.catalogue.hit import Hit

MOST = 20  # sessions in a list, places that were found
_WIDEST = 100  # cells
_KEPT_NOWHERE = "this session is kept nowhere, and no other is looked for"
_THERE = "a number goes on there; Enter stays here:"


def completed(around: Surroundings) -> Iterable[CompletionChoice]:
    """What names a session, for completion."""
    for id_, name, title in around.sessions():
        yield CompletionChoice(name or id_, title, f"{id_} {title}")


async def sessions(here: Conversation, rest: str) -> None:
    """The newest of this directory; with words, those that are called so or tagged so."""
    from refold.views.picking import Picking, numbered

    cards = await _others(here)
    found = Picking(tuple(cards), rest).shown
    if not found:
        raise BadInput(f"no other session of this directory is called {rest!r}")
    shown = found[:MOST]
    here.paper.lines(numbered(shown, here.paper.room, time.time()))
    if more := len(found) - len(shown):
        here.paper.say(f"{more} older: /sessions WORDS, or /resume", "dim")
    await _one_of([card.id for card in shown], here)


async def resume(here: Conversation, rest: str) -> None:
    """Go over to another session: the one that is named, or that is picked."""
    if not rest:
        if id_ := await _picked(here):
            await _go_over(here, id_)
        return
    home = _home(here)
    if rest == LAST:
        await _go_over(here, (await _others(here))[0].id)
        return
    found = await anyio.to_thread.run_sync(home.find, rest)
    await _go_over(here, found.id)


async def search(here: Conversation, rest: str) -> None:
    """Where it was said, in the sessions of this directory, and a way there."""
    from refold.views.catalogued import by_session, hit_lines

    if not rest:
        raise BadInput("say /search WORDS: what was said in a session of this directory")
    hits = await anyio.to_thread.run_sync(_found, _home(here), rest, _directory(here))
    found = by_session(hits)
    if not found:
        here.paper.say("Nothing was found in the sessions of this directory.")
        return
    for number, of_one in enumerate(found, start=1):
        wide = len(str(len(found))) + 2
        rows = hit_lines(of_one, here.paper.room - wide, bold=False)
        for at, row in enumerate(rows):
            head = f"{'' if at else number:<{wide}}"
            here.paper.line((("accent", head), ("dim" if at else "plain", row)))
    await _one_of([of_one[0].card.id for of_one in found], here)


async def _one_of(ids: Sequence[str], here: Conversation) -> None:
    said = (await here.ask_words(_THERE)).strip()
    if not said:
        return
    if not (said.isascii() and said.isdecimal() and 1 <= int(said) <= len(ids)):
        raise BadInput(
            f"{said!r} is none of the numbers, 1 to {len(ids)}: this one goes on"
        )
    await _go_over(here, ids[int(said) - 1])


async def _picked(here: Conversation) -> str:
    from refold.cli.sessions.resuming import choose  # only who picks one pays for it

    where = Path(_directory(here))
    own = here.session.view.about.id
    return await choose(here.paper, here.reading, _home(here), where, own)


async def _go_over(here: Conversation, id_: str) -> None:
    if id_ == here.session.view.about.id:
        raise BadInput(f"{id_} is this session")
    left, paper = here.session.view.about, here.paper
    notices = await here.go_on(Way(id_))
    view = here.session.view
    called = on_one_line(view.about.name or view.about.title or id_)
    paper.say(f'Gone over to "{called}".', "dim")
    if view.about.directory != left.directory:
        heading(view, here.around, paper)
    for notice in notices:
        paper.say(notice, "warn")
    paper.gap()
    paper.lines(recap(view, min(paper.room, _WIDEST), paper.look.sign("prompt")))
    if not here.session.idle:
        paper.line(line("Going on with what was under way.", "dim"))
        await here.go()


async def _others(here: Conversation) -> "Sequence[Card]":
    from refold.cli.sessions.resuming import sessions_of

    catalogue, directory = _home(here).catalogue(), _directory(here)
    cards = await anyio.to_thread.run_sync(sessions_of, catalogue, directory)
    found = [card for card in cards if card.id != here.session.view.about.id]
    if not found:
        raise BadInput("there is no other session of this directory")
    return found


def _found(home: Home, words: str, directory: str) -> "Sequence[Hit]":
    from refold.cli.sessions.resuming import sessions_of

    catalogue = home.catalogue()
    ids = {card.id for card in sessions_of(catalogue, directory)}
    return catalogue.search(words, MOST, lambda card: card.id in ids)


def _home(here: Conversation) -> Home:
    if here.around.home is None:
        raise BadInput(_KEPT_NOWHERE)
    return here.around.home


def _directory(here: Conversation) -> str:
    return here.session.view.about.directory or str(Path.cwd())
