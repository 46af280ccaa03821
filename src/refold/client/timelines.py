"""The timelines of stored sessions, in pages. Each journal entry is folded only once.

`views.timeline` makes the rows of the requested page; `stored_sessions` calls this module.
Every function blocks on the disk.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from msgspec import Struct

from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View, fold
from refold.journal.state.session_tree import ROOT_ADDRESS, Node
from refold.views.activity import ActivityFold, Span
from refold.views.session_tree import Labels
from refold.views.timeline import TimelineRow, began_at, timeline_row

_MAX_TIMELINES = 4  # timelines in memory: those that were requested last


class TimelinePage(Struct, frozen=True):
    """A page of rows.

    `following` is the cursor of the next page; "" on the last page.
    """

    rows: tuple[TimelineRow, ...]
    following: str


class Timelines:
    """The timelines of the sessions of one home. Several threads may use it."""

    def __init__(self, index: SessionIndex, label: Labels) -> None:
        self._index = index
        self._label = label
        self._timelines = OrderedDict[str, _Timeline]()  # the last requested is the last
        self._lock = Lock()

    def page(self, id_: str, limit: int, after: str = "") -> TimelinePage:
        """Return at most `limit` rows after the row with this cursor.

        Raises `BadInput` for an unknown cursor.
        """
        with self._lock:
            timeline = self._timelines.pop(id_, None)
            if timeline is None:
                timeline = _Timeline(self._index, id_)
            self._timelines[id_] = timeline  # at the end, as the last requested
            while len(self._timelines) > _MAX_TIMELINES:
                self._timelines.popitem(last=False)
            timeline.update()
            return timeline.page(limit, after, self._label)


class _GrowingNode:
    """A session or subagent of a timeline: its calls and its state up to the last entry
    read.
    """

    def __init__(self, address: str, session: str) -> None:
        self.address = address
        self.session = session
        self.activity = ActivityFold()
        self.view = View()
        self.is_written = False  # whether a process writes its journal now

    def add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.activity.add(entry)
        self.view = fold(entries, self.view)

    @property
    def node(self) -> Node:
        return Node(self.address, self.session, (), self.view, written=self.is_written)


class _Timeline:
    """The timeline of a session and its subagents, which grows with their journals.

    `_spans` (calls with their times) are sorted by their beginning, with their cursors.
    """

    def __init__(self, index: SessionIndex, id_: str) -> None:
        self._index = index
        self._id = id_
        self._news = index.follow(id_, ROOT_ADDRESS)
        self._nodes = dict[str, _GrowingNode]()  # parents before their subagents
        self._spans: Sequence[tuple[Span, _GrowingNode]] = ()
        self._cursors: Sequence[str] = ()
        self._positions = dict[str, int]()  # the position of each cursor

    def update(self) -> None:
        """Read new entries, and find out which sessions are being written now."""
        has_grown = self._fold_news()
        open_nodes = [node for node in self._nodes.values() if node.view.turn.seq]
        for node in open_nodes:
            node.is_written = self._index.writer(node.session) is not None
        if any(not node.is_written for node in open_nodes):
            # A turn ends before its writer releases the lock, so its end can be read now.
            has_grown |= self._fold_news()
        if has_grown:
            self._sort()

    def page(self, limit: int, after: str, label: Labels) -> TimelinePage:
        """Return up to `limit` rows after the cursor `after`; "" is the beginning.

        Raises `BadInput` for an unknown cursor.
        """
        if after and after not in self._positions:
            raise BadInput(f"no call of this conversation has the address {after!r}")
        start = self._positions[after] + 1 if after else 0
        stop = start + limit
        now = time.time()
        # Each node once, although many spans have the same.
        nodes = {address: growing.node for address, growing in self._nodes.items()}
        rows = tuple(
            timeline_row(span, nodes[growing.address], now, label)
            for span, growing in self._spans[start:stop]
        )
        is_last_page = stop >= len(self._spans)
        following = "" if is_last_page else self._cursors[stop - 1]
        return TimelinePage(rows, following)

    def _fold_news(self) -> bool:
        """Fold new entries into their nodes. Return False if there are none."""
        new_entries = dict[str, list[Entry]]()  # by the address of their node
        for address, entry in self._news.new_entries():
            new_entries.setdefault(address, []).append(entry)
        for address, entries in new_entries.items():
            if address not in self._nodes:
                session = f"{self._id}{address.removeprefix(ROOT_ADDRESS)}"
                self._nodes[address] = _GrowingNode(address, session)
            self._nodes[address].add(entries)
        return bool(new_entries)

    def _sort(self) -> None:
        """Sort the spans of all nodes by their beginning, and give each a cursor."""
        spans = [
            (span, node) for node in self._nodes.values() for span in node.activity.spans
        ]

        def beginning(pair: tuple[Span, _GrowingNode]) -> float:
            span, _ = pair
            return began_at(span)

        spans.sort(key=beginning)  # it is stable: at the same moment, parents come first
        cursors = list[str]()
        positions = dict[str, int]()
        for position, (span, node) in enumerate(spans):
            cursor = f"{node.address}/{span.id}"
            if cursor in positions:  # the model has used this call id before
                cursor = f"{cursor}#{position}"
            cursors.append(cursor)
            positions[cursor] = position
        self._spans = spans
        self._cursors = cursors
        self._positions = positions
