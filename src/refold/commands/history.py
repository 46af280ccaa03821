"""/history: show the conversation, with the number of each message for /rewind."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages in this session yet."
_MAX_ROW_CELLS = 100  # longer rows of prose are hard to read


async def run(context: CommandContext, arguments: str) -> None:
    """Show all messages, or, with N, the messages since the Nth last message of the user."""
    from refold.views.screen.history import message_lines

    last = number_in(arguments, "/history")
    entries = await context.session.reports.entries()
    width = 0  # whole lines, for a surface that wraps lines itself
    if context.look.wraps:
        width = min(context.look.width, _MAX_ROW_CELLS) - 1
    rewound = context.session.workspace.rewound
    edits = dict(context.session.view.conversation.edits)
    rows = await anyio.to_thread.run_sync(
        lambda: list(message_lines(entries, rewound, last, width, edits))
    )
    if not rows:
        context.show(line(_EMPTY_TEXT))
        return
    await context.show_long(rows)


def number_in(arguments: str, command: str) -> int:
    """Return the number in `arguments`; 0 if it is empty.

    Raises `BadInput`, which names `command`, for anything else.
    """
    if not arguments:
        return 0
    is_number = arguments.isascii() and arguments.isdecimal()
    if not is_number or int(arguments) == 0:
        raise BadInput(f"type {command}, or {command} N with a number, not {arguments!r}")
    return int(arguments)
