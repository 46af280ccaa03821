"""/history: the conversation, with the numbers that /rewind takes."""

import anyio

from refold.console.pager import show
from refold.errors import BadInput
from refold.terminal.terminal import Terminal

_EMPTY = "There are no messages in this session yet."


async def run(here: Terminal, rest: str) -> None:
    """All messages; with N, only from the Nth last of the person on."""
    from refold.views.screen.history import message_lines

    last = number_in(rest, "/history")
    entries = await here.session.reports.entries()
    room = min(here.printer.room, 100) - 1 if here.printer.look.moves else 0
    gone = here.session.workspace.rewound
    edits = dict(here.session.view.conversation.edits)
    rows = await anyio.to_thread.run_sync(
        lambda: list(message_lines(entries, gone, last, room, edits))
    )
    if not rows:
        here.printer.say(_EMPTY)
        return
    await show(rows, here.printer)


def number_in(rest: str, command: str) -> int:
    """0 where nothing was typed."""
    if rest and not (rest.isascii() and rest.isdecimal() and int(rest)):
        raise BadInput(f"type {command}, or {command} N with a number, not {rest!r}")
    return int(rest or 0)
