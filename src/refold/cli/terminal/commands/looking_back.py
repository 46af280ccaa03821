"""/history, /trace and /verify: what was said and done in this session, read off its journal.

Nothing is written, and no model asked. What does not fit on the screen opens in the
person's pager.
"""

import time
from functools import partial

import anyio
from anyio.from_thread import check_cancelled

from refold.cli.terminal.commands import whole
from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.journal import lines
from refold.journal.events import Entry
from refold.journal.fold import View
from refold.journal.home import Home
from refold.journal.tree import ROOT, Node
from refold.session.rewinding import steps
from refold.values.messages import ToolCall
from refold.views.calls import label
from refold.views.styled import Line

_NOTHING_SAID = "Nothing was said in this session yet."
_NARROW = 60  # cells that a row needs to say anything
_NOTHING_DONE = "Nothing was done in this session yet."


async def history(here: Conversation, rest: str) -> None:
    """What was said, each with its number; with N, only the last so many."""
    from refold.views.said import said

    last = _number(rest, "/history")
    entries = await here.session.record.entries()
    room = min(here.paper.room, 100) - 1 if here.paper.look.moves else 0
    gone = {s.point.seq for s in steps(here.session.view, None) if not s.in_talk}
    rows = await anyio.to_thread.run_sync(lambda: list(said(entries, gone, last, room)))
    if not rows:
        here.paper.say(_NOTHING_SAID)
        return
    await whole.show(rows, here.paper)


async def trace(here: Conversation, rest: str) -> None:
    """Each call with its time and cost; with N, only the slowest so many."""
    from refold.views.trace import slowest, trace_lines
    from refold.views.trace import trace as traced

    slow = _number(rest, "/trace")
    entries = await here.session.record.entries()
    node = await anyio.to_thread.run_sync(
        partial(_tree, here.around.home, here.session.view, tuple(entries))
    )

    def named(call: ToolCall) -> str:
        return label(call, here.around.tool(call.name))

    every = traced(node, time.time(), named)
    rows = list(
        trace_lines(slowest(every, slow) if slow else every, max(here.paper.room, _NARROW))
    )
    if not rows:
        here.paper.say(_NOTHING_DONE)
        return
    await whole.show(rows, here.paper)


async def verify(here: Conversation, rest: str) -> None:
    """What the last answer claims, or that of turn N, held against what was done."""
    turn = _number(rest, "/verify")
    if here.around.files is None:
        raise BadInput("the files cannot be looked at here: refold verify does it")
    entries = tuple(await here.session.record.entries())
    work = partial(_verdicts, here, entries, turn)
    here.paper.lines(await here.apart.do(work, leaves_nothing=True) or ())


def _verdicts(here: Conversation, entries: tuple[Entry, ...], turn: int) -> list[Line]:
    from refold.claims.checking import check, told_in
    from refold.claims.seen import Record, seen_in
    from refold.claims.today import Today
    from refold.claims.tree import records
    from refold.cli.reading.verify import VerifyReport
    from refold.cli.reading.verify import lines as reported
    from refold.values.claims import Checked

    files, id_ = here.around.files, here.session.view.about.id
    assert files is not None  # the caller has looked
    try:
        told = told_in(entries, turn)
    except LookupError as error:
        raise BadInput(
            f"there is no turn {turn} in this session; the first is 1"
        ) from error
    home = here.around.home
    journals = [Record(entries)] if home is None else records(home.path(id_), entries)
    seen, today = seen_in(journals), Today(files)
    checked = list[Checked]()
    for claim in told.claims:
        check_cancelled()
        checked += check((claim,), seen, today)
    return list(reported(VerifyReport(id_, told, tuple(checked))))


def _tree(home: Home | None, view: View, entries: tuple[Entry, ...]) -> Node:
    """This session and all below it: from the disk, or of itself alone."""
    id_ = view.about.id
    if home is not None and id_ and (home.path(id_) / lines.NAME).is_file():
        from refold.journal.tree_files import tree

        return tree(home.path(id_), id_)
    from pathlib import Path

    return Node(ROOT, id_, Path(), entries, view, written=True)


def _number(rest: str, command: str) -> int:
    """0 where nothing was said."""
    if rest and not (rest.isascii() and rest.isdecimal() and int(rest)):
        raise BadInput(f"say {command}, or {command} N with a number, not {rest!r}")
    return int(rest or 0)
