"""/expand: show a result, thinking or a message in full, if the screen shows only a part.

If the journal has only a part, too, the whole text is read from a blob beside the journal.
"""

from collections.abc import Iterator, Sequence

import anyio

from refold.client.types import Entry, events
from refold.commands.command_context import CommandContext
from refold.errors import BadInput, JournalError
from refold.values.messages import Thinking, ToolCall
from refold.views.call_summary import full_label, whole_rows
from refold.views.escape import visible
from refold.views.styled import Line, line
from refold.views.wrap import break_lines, expand_tabs, wrap_words

_USAGE_HINT = (
    "type /expand for the newest result, /expand N for the Nth newest, /expand thinking or "
    "/expand message"
)


async def run(context: CommandContext, arguments: str) -> None:
    """Show the newest result in full, or the Nth newest.

    With `thinking` or `message`, show the newest thinking or message.
    """
    entries = await context.session.reports.entries()
    width = context.look.width - 1
    if arguments in ("thinking", "message"):
        text = next(_texts(arguments, entries), "")
        if not text.strip():
            raise BadInput(f"there is no {arguments} in this session")
        rows = visible(text.strip("\n")).split("\n")
        await context.show_long([part for row in rows for part in wrap_words(row, width)])
        return
    if arguments and not (arguments.isdecimal() and int(arguments)):
        raise BadInput(f"{_USAGE_HINT}, not {arguments!r}")
    ends = [entry.event for entry in entries if isinstance(entry.event, events.Ended)]
    number = int(arguments or 1)
    if number > len(ends):
        hint = f"there are {len(ends)}" if ends else "there is none yet"
        raise BadInput(f"there is no result {number} in this session: {hint}")
    end = ends[-number]  # the newest is the last
    await context.show_long(await _rows(end, _find_call(end.call_id, entries), context))


def _texts(kind: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the texts of `kind`, thinking or messages, the newest first."""
    for entry in reversed(entries):
        match entry.event:
            case events.ModelAnswered(message) if kind == "thinking":
                parts = [p.text for p in message.parts if isinstance(p, Thinking)]
                if any(part.strip() for part in parts):
                    yield "\n\n".join(parts)
            case events.Said(sender="person") as said_event if kind == "message":
                yield said_event.typed or said_event.text
            case _:
                pass


async def _rows(
    end: events.Ended, call: ToolCall | None, context: CommandContext
) -> list[Line]:
    """Return rows with the call as a heading, and its whole result."""
    width = context.look.width - 1
    directory = context.session.view.session.directory
    heading = end.call_id
    if call is not None:
        heading = full_label(call, context.session.tool(call.name))
    heading_rows = break_lines(expand_tabs(heading), width)
    text = await _text(end, context)
    rows = await anyio.to_thread.run_sync(whole_rows, end, text, width, directory)
    return [*(line(row, "strong") for row in heading_rows), *rows]


async def _text(end: events.Ended, context: CommandContext) -> str:
    """Return the whole text of a result, from a blob if the journal has only a part."""
    if end.full_blob:
        try:
            return (await context.session.blob(end.full_blob)).decode(errors="replace")
        except JournalError as error:
            return f"{end.text}\n(The full result cannot be read: {error})"
    return end.text


def _find_call(call_id: str, entries: Sequence[Entry]) -> ToolCall | None:
    """Return the newest call with this id; None if the model made no such call."""
    for entry in reversed(entries):
        if isinstance(entry.event, events.ModelAnswered):
            for call in entry.event.message.calls:
                if call.id == call_id:
                    return call
    return None
