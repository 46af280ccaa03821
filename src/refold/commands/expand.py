"""/expand: a tool result in full, of which the screen shows only the start and the end.

What the model got only in part is read from the journal's blobs.
"""

from collections.abc import Sequence

from refold.client.types import Entry, events
from refold.commands.command_context import CommandContext
from refold.errors import BadInput, JournalError
from refold.values.messages import ToolCall
from refold.views.call_summary import label, whole
from refold.views.styled import Line, line

_USAGE_HINT = "type /expand for the newest result, or /expand N for the Nth newest"


async def run(here: CommandContext, rest: str) -> None:
    """Show the newest result, or the Nth newest."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"{_USAGE_HINT}, not {rest!r}")
    entries = await here.session.reports.entries()
    ends = [entry.event for entry in entries if isinstance(entry.event, events.Ended)]
    number = int(rest or 1)
    if number > len(ends):
        hint = f"there are {len(ends)}" if ends else "there is none yet"
        raise BadInput(f"there is no result {number} in this session: {hint}")
    end = ends[-number]
    await here.show_long(await _rows(end, _find_call(end.call_id, entries), here))


async def _rows(
    end: events.Ended, call: ToolCall | None, here: CommandContext
) -> list[Line]:
    room = here.look.room - 1
    about = here.session.view.session.directory
    head = label(call, here.session.tool(call.name)) if call else end.call_id
    rows = whole(end, await _text(end, here), room, about)
    return [line(head, "strong"), *rows]


async def _text(end: events.Ended, here: CommandContext) -> str:
    if end.full_blob:
        try:
            return (await here.session.blob(end.full_blob)).decode(errors="replace")
        except JournalError as error:
            return f"{end.text}\n(The full result cannot be read: {error})"
    return end.text


def _find_call(call_id: str, entries: Sequence[Entry]) -> ToolCall | None:
    for entry in reversed(entries):
        if isinstance(entry.event, events.ModelAnswered):
            for call in entry.event.message.calls:
                if call.id == call_id:
                    return call
    return None
