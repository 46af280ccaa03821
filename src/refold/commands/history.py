"""/history: the conversation, with the numbers that /rewind takes."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages in this session yet."


async def run(here: CommandContext, rest: str) -> None:
    """Show all messages; with N, from the Nth last message of the person."""
    from refold.views.screen.history import message_lines

    last = number_in(rest, "/history")
    entries = await here.session.reports.entries()
    room = min(here.look.room, 100) - 1 if here.look.wraps else 0
    gone = here.session.workspace.rewound
    edits = dict(here.session.view.conversation.edits)
    rows = await anyio.to_thread.run_sync(
        lambda: list(message_lines(entries, gone, last, room, edits))
    )
    if not rows:
        here.show(line(_EMPTY_TEXT))
        return
    await here.show_long(rows)


def number_in(rest: str, command: str) -> int:
    """Return the number that was typed, 0 for none. Raises `BadInput`."""
    if rest and not (rest.isascii() and rest.isdecimal() and int(rest)):
        raise BadInput(f"type {command}, or {command} N with a number, not {rest!r}")
    return int(rest or 0)
