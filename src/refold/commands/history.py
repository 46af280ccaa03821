"""/history: the conversation, with the numbers that /rewind takes."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages in this session yet."


async def run(context: CommandContext, arguments: str) -> None:
    """Show all messages; with N, from the Nth last message of the person."""
    from refold.views.screen.history import message_lines

    last = number_in(arguments, "/history")
    entries = await context.session.reports.entries()
    width = min(context.look.width, 100) - 1 if context.look.wraps else 0
    gone = context.session.workspace.rewound
    edits = dict(context.session.view.conversation.edits)
    rows = await anyio.to_thread.run_sync(
        lambda: list(message_lines(entries, gone, last, width, edits))
    )
    if not rows:
        context.show(line(_EMPTY_TEXT))
        return
    await context.show_long(rows)


def number_in(arguments: str, command: str) -> int:
    """Return the number that was typed, 0 for none. Raises `BadInput`."""
    if arguments and not (arguments.isascii() and arguments.isdecimal() and int(arguments)):
        raise BadInput(f"type {command}, or {command} N with a number, not {arguments!r}")
    return int(arguments or 0)
