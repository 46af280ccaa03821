"""/resume: switch to another session; the present one is closed and stays saved.
/sessions: list the other sessions of this directory, and switch to one.
/search: search the messages of the sessions of this directory.

The catalogue finds sessions; the context opens one.
"""

import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from refold.client.catalogue import LAST_SESSION
from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.client.types import Card
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.commands.session_lines import heading
from refold.errors import BadInput
from refold.views.escape import on_one_line
from refold.views.picker import rows_with_numbers
from refold.views.session_list import group_by_session, hit_lines, session_picker
from refold.views.styled import line

_MAX_ROWS = 20  # sessions in a list, messages that are found
_NUMBER_PROMPT = "number to switch to, Enter to stay:"


def choices(session: Session) -> Iterable[CompletionChoice]:
    """Yield names or ids of sessions, which are also found by id and title."""
    for id_, name, title in session.catalogue.names() if session.is_saved else ():
        yield CompletionChoice(name or id_, title, f"{id_} {title}")


async def run(here: CommandContext, rest: str) -> None:
    catalogue = here.session.catalogue
    if not rest:
        picker = session_picker(await other_sessions(here), time.time())
        search = catalogue.search_while_typing
        answer = await here.pick(picker, search)
        if answer and answer.selection:
            await switch_to(here, answer.selection.id)
    elif rest == LAST_SESSION:
        await switch_to(here, (await other_sessions(here))[0].id)
    else:
        await switch_to(here, await catalogue.find(rest))


async def switch_to_one(here: CommandContext, ids: Sequence[str]) -> None:
    """Ask for a number in a list that was printed, and switch to that session."""
    typed = (await here.ask(_NUMBER_PROMPT)).strip()
    if not typed:
        return
    if not (typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(ids)):
        raise BadInput(f"{typed!r} is not a number from 1 to {len(ids)}")
    await switch_to(here, ids[int(typed) - 1])


async def switch_to(here: CommandContext, id_: str) -> None:
    if id_ == here.session.id:
        raise BadInput(f"{id_} is this session")
    left = here.session.view.session
    notices = await here.switch(ResumeTarget(id_))
    view = here.session.view
    called = on_one_line(view.session.name or view.session.title or id_)
    here.show(line(f'Resumed "{called}".', "dim"))
    if view.session.directory != left.directory:
        here.show(heading(here.session))
    for notice in notices:
        here.show(line(notice, "warn"))
    await here.show_session()


async def other_sessions(here: CommandContext) -> Sequence[Card]:
    """Return the other sessions of this directory, newest first."""
    if not (sessions := await here.session.catalogue.sessions()):
        raise BadInput("there is no other session of this directory")
    return sessions


async def run_sessions(here: CommandContext, rest: str) -> None:
    """List the newest sessions; with words, those with them in name, title or tag."""
    picker = session_picker(await other_sessions(here), time.time())
    items = replace(picker, query=rest).items
    if not items:
        raise BadInput(f"no other session of this directory matches {rest!r}")
    shown = items[:_MAX_ROWS]
    here.show(*rows_with_numbers(shown, here.look.room))
    if more := len(items) - len(shown):
        here.show(line(f"{more} older ones: /sessions WORDS, or /resume", "dim"))
    await switch_to_one(here, [item.id for item in shown])


async def run_search(here: CommandContext, rest: str) -> None:
    if not rest:
        raise BadInput("type /search WORDS, to search the sessions of this directory")
    groups = group_by_session(await here.session.catalogue.search(rest, _MAX_ROWS))
    if not groups:
        here.show(line("Nothing was found in the sessions of this directory."))
        return
    for number, of_one in enumerate(groups, start=1):
        wide = len(str(len(groups))) + 2
        rows = hit_lines(of_one, here.look.room - wide, bold=False)
        for index, row in enumerate(rows):
            head = f"{'' if index else number:<{wide}}"
            here.show((("accent", head), ("dim" if index else "plain", row)))
    await switch_to_one(here, [of_one[0].card.id for of_one in groups])
