"""/history: show the conversation, with the number of each message for /rewind."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages in this session yet."
_MAX_ROW_CELLS = 100  # longer rows of prose are hard to read


async def run(context: CommandContext, arguments: str) -> None:
    """Show all messages; with N, those from the Nth last message of the user on."""
    from refold.views.screen.history import message_lines

    last = number_in(arguments, "/history")
    entries = await context.session.reports.entries()
    # 0: a surface that wraps lines itself gets whole ones
    width = min(context.look.width, _MAX_ROW_CELLS) - 1 if context.look.wraps else 0
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
    if arguments and not (arguments.isascii() and arguments.isdecimal() and int(arguments)):
        raise BadInput(f"type {command}, or {command} N with a number, not {arguments!r}")
    return int(arguments or 0)
