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
from refold.views.escape import escape_to_one_line
from refold.views.picker import rows_with_numbers
from refold.views.session_list import group_by_session, hit_lines, session_picker
from refold.views.styled import line

_MAX_ROWS = 20  # sessions in a list, messages that are found
_NUMBER_PROMPT = "number to switch to, Enter to stay:"


def choices(session: Session) -> Iterable[CompletionChoice]:
    """Yield a completion for each session: its name, or its id if it has no name.

    The completion is also found if the id or title of the session is typed.
    """
    for id_, name, title in session.catalogue.names() if session.is_saved else ():
        yield CompletionChoice(name or id_, title, f"{id_} {title}")


async def run(context: CommandContext, arguments: str) -> None:
    """Switch to the session that is named, to the newest, or to one that the user picks."""
    catalogue = context.session.catalogue
    if not arguments:
        picker = session_picker(await other_sessions(context), time.time())
        search = catalogue.search_while_typing
        answer = await context.pick(picker, search)
        if answer and answer.selection:
            await switch_to(context, answer.selection.id)
    elif arguments == LAST_SESSION:
        newest, *_ = await other_sessions(context)
        await switch_to(context, newest.id)
    else:
        await switch_to(context, await catalogue.find(arguments))


async def switch_to_one(context: CommandContext, ids: Sequence[str]) -> None:
    """Ask for the number of a session in the printed list `ids`, and switch to it."""
    typed = (await context.ask(_NUMBER_PROMPT)).strip()
    if not typed:
        return
    if not (typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(ids)):
        raise BadInput(f"{typed!r} is not a number from 1 to {len(ids)}")
    await switch_to(context, ids[int(typed) - 1])


async def switch_to(context: CommandContext, id_: str) -> None:
    """Close this session, and open and show the session with the id `id_`.

    Raises `BadInput` if `id_` is the session that is open.
    """
    if id_ == context.session.id:
        raise BadInput(f"{id_} is this session")
    old_session = context.session.view.session
    notices = await context.switch(ResumeTarget(id_))
    view = context.session.view
    called = escape_to_one_line(view.session.name or view.session.title or id_)
    context.show(line(f'Resumed "{called}".', "dim"))
    if view.session.directory != old_session.directory:
        context.show(heading(context.session))
    for notice in notices:
        context.show(line(notice, "warn"))
    await context.show_session()


async def other_sessions(context: CommandContext) -> Sequence[Card]:
    """Return the other sessions of this directory, newest first.

    Raises `BadInput` if there are none.
    """
    sessions = await context.session.catalogue.sessions()
    if not sessions:
        raise BadInput("there is no other session of this directory")
    return sessions


async def run_sessions(context: CommandContext, arguments: str) -> None:
    """List the newest sessions, and let the user switch to one.

    With `arguments`, list only sessions with these words in their name, title or tags.
    """
    picker = session_picker(await other_sessions(context), time.time())
    items = replace(picker, query=arguments).items
    if not items:
        raise BadInput(f"no other session of this directory matches {arguments!r}")
    shown = items[:_MAX_ROWS]
    context.show(*rows_with_numbers(shown, context.look.width))
    if more := len(items) - len(shown):
        context.show(line(f"{more} older ones: /sessions WORDS, or /resume", "dim"))
    await switch_to_one(context, [item.id for item in shown])


async def run_search(context: CommandContext, arguments: str) -> None:
    """Show the sessions in which the words occur, and let the user switch to one."""
    if not arguments:
        raise BadInput("type /search WORDS, to search the sessions of this directory")
    groups = group_by_session(await context.session.catalogue.search(arguments, _MAX_ROWS))
    if not groups:
        context.show(line("Nothing was found in the sessions of this directory."))
        return
    column_width = len(str(len(groups))) + 2
    for number, hits in enumerate(groups, start=1):
        first_row, *other_rows = hit_lines(
            hits, context.look.width - column_width, bold=False
        )
        context.show((("accent", f"{number:<{column_width}}"), ("plain", first_row)))
        for row in other_rows:
            context.show((("accent", " " * column_width), ("dim", row)))
    await switch_to_one(context, [hits[0].card.id for hits in groups])
