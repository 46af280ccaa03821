"""/expand: the result of a call, whole, where the talk shows only its start and end.

It is read in the person's own pager where there is a terminal for one, and printed
elsewhere. What was cut for the model is taken from where it is kept.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from refold import programs
from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.display.paper import Paper
from refold.errors import BadInput, JournalError, RefoldError
from refold.journal.events import Ended, Entry, ModelAnswered
from refold.programs import Programs
from refold.values.messages import ToolCall
from refold.values.shown import Output
from refold.views.calls import label
from refold.views.calls import whole as rows_of
from refold.views.styled import Line, line

_HOW = "say /expand for the newest result, or /expand N for the one N results back"
_COLORS = ("most", "ov", "moar", "moor", "bat")  # pagers that show them without being asked


async def whole(here: Conversation, rest: str) -> None:
    """The newest result, or the one of that number, counted back from the newest as 1."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"{_HOW}, not {rest!r}")
    entries = await here.session.record.entries()
    ends = [each.event for each in entries if isinstance(each.event, Ended)]
    number = int(rest or 1)
    if number > len(ends):
        there = f"there are {len(ends)}" if ends else "there is none yet"
        raise BadInput(f"there is no result {number} in this session: {there}")
    end = ends[-number]
    await show(await _rows(end, _called(end.call_id, entries), here), here.paper)


async def show(rows: Sequence[Line], paper: Paper) -> None:
    """In the person's pager where there is a terminal for it, and more than it holds."""
    can = paper.look.moves and os.isatty(0) and os.isatty(1)
    command = pager_of(os.environ) if can and len(rows) >= paper.look.height() else ()
    if command:
        await _paged(rows, command, paper)
    else:
        paper.lines(rows)


def pager_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command that shows a long text: $PAGER, or less where there is one."""
    said = environ.get("PAGER", "").strip()
    try:
        words = tuple(shlex.split(said))
    except ValueError as error:
        raise RefoldError(f"$PAGER is no command: {error}") from error
    return words or (("less", "-R") if _programs().find("less") else ())


def _programs() -> Programs:
    return Programs(os.environ)


def _shows_colors(command: Sequence[str], less: str) -> bool:
    name = Path(command[0]).name
    if name != "less":
        return name in _COLORS
    return any("r" in word.lower() for word in (less, *command[1:]))


async def _rows(end: Ended, call: ToolCall | None, here: Conversation) -> list[Line]:
    room = here.paper.room - 1
    about = here.session.view.about.directory
    head = label(call, here.around.tool(call.name)) if call else end.call_id
    rows = rows_of(end, await _text(end, here), room, about)
    return [line(head, "strong"), *rows]


async def _text(end: Ended, here: Conversation) -> str:
    if end.whole:
        try:
            return (await here.session.record.get(end.whole)).decode(errors="replace")
        except JournalError as error:
            return f"{end.text}\n(The whole of it cannot be read: {error})"
    printed = [part.text for part in end.shown if isinstance(part, Output)]
    return "\n".join(printed) if any(printed) else end.text


def _called(call_id: str, entries: Sequence[Entry]) -> ToolCall | None:
    for each in reversed(entries):
        if isinstance(each.event, ModelAnswered):
            for call in each.event.message.calls:
                if call.id == call_id:
                    return call
    return None


async def _paged(rows: Sequence[Line], command: Sequence[str], paper: Paper) -> None:
    """Harmless text and our own colours; the pager has the terminal meanwhile."""
    # As git does: colours go through, and what fits on a screen needs no key.
    environ = {"LESS": "FRX", **os.environ}
    painted = _shows_colors(command, environ["LESS"])
    text = "".join(
        "".join(paper.look.paint(*piece) if painted else piece[1] for piece in row) + "\n"
        for row in rows
    )
    paper.fresh()
    paper.no_status()
    try:
        program = _programs().need(command[0])
        async with await programs.open_process(
            (program, *command[1:]), stdout=None, stderr=None, env=environ
        ) as running:
            assert running.stdin is not None  # it is a pipe
            try:
                await running.stdin.send(text.encode(errors="replace"))
                await running.stdin.aclose()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # it was left before it had read all
            await running.wait()
    except OSError as error:
        raise RefoldError(f"{command[0]} could not be started: {error}") from error
    paper.typed()
