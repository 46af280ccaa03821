"""/timeline: every call of the session with its time and cost."""

import time
from functools import partial
from pathlib import Path

import anyio

from refold.journal.events.kinds import Entry
from refold.journal.home import Home
from refold.journal.state.fold import View
from refold.journal.state.session_tree import ROOT, Node
from refold.journal.store import log_file
from refold.terminal.commands.history import number_in
from refold.terminal.screen.pager import show
from refold.terminal.terminal import Terminal
from refold.values.messages import ToolCall
from refold.views.call_summary import label
from refold.views.timeline import slowest, timeline, timeline_lines

_EMPTY = "There are no calls in this session yet."
_NARROW = 60  # cells that a row needs to be useful


async def run(here: Terminal, rest: str) -> None:
    """All calls; with N, only the N slowest."""
    slow = number_in(rest, "/timeline")
    entries = await here.session.record.entries()
    node = await anyio.to_thread.run_sync(
        partial(_tree, here.around.home, here.session.view, tuple(entries))
    )

    def named(call: ToolCall) -> str:
        return label(call, here.around.tool(call.name))

    calls = timeline(node, time.time(), named)
    room = max(here.printer.room, _NARROW)
    rows = list(timeline_lines(slowest(calls, slow) if slow else calls, room))
    if not rows:
        here.printer.say(_EMPTY)
        return
    await show(rows, here.printer)


def _tree(home: Home | None, view: View, entries: tuple[Entry, ...]) -> Node:
    """The session and its subagents, from the disk; or itself alone."""
    id_ = view.session.id
    if home is not None and id_ and (home.path(id_) / log_file.NAME).is_file():
        from refold.journal.store.tree_reader import tree

        return tree(home.path(id_), id_)
    return Node(ROOT, id_, Path(), entries, view, written=True)
