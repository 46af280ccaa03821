"""The timelines of stored sessions in pages: entries are folded once, and then only those that are new.

`views.timeline` makes the rows, of the page that is asked for; `stored_sessions` asks. Everything here
blocks on the disk.
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

_MAX_TIMELINES = 4  # in memory: of those that are scrolled now


class TimelinePage(Struct, frozen=True):
    """`following` is the cursor of the next page; "": there is none."""

    rows: tuple[TimelineRow, ...]
    following: str


class Timelines:
    """The timelines of the sessions of one home, used by several threads."""

    def __init__(self, index: SessionIndex, label: Labels) -> None:
        self._home, self._label = index, label
        self._known = OrderedDict[str, _Timeline]()
        self._lock = Lock()

    def page(self, id_: str, limit: int, after: str = "") -> TimelinePage:
        """At most `limit` rows behind the row with this cursor.

        Raises `BadInput` if there is none.
        """
        with self._lock:
            timeline = self._known.pop(id_, None) or _Timeline(self._home, id_)
            self._known[id_] = timeline
            while len(self._known) > _MAX_TIMELINES:
                self._known.popitem(last=False)
            timeline.update()
            return timeline.page(limit, after, self._label)


class _GrowingNode:
    """A session of the tree: its spans and its view, as of the newest entry read."""

    def __init__(self, address: str, session: str) -> None:
        self.address, self.session = address, session
        self.activity, self.view = ActivityFold(), View()
        self.is_written = False

    def add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.activity.add(entry)
        self.view = fold(entries, self.view)

    @property
    def node(self) -> Node:
        return Node(self.address, self.session, (), self.view, written=self.is_written)


class _Timeline:
    """A tree that is followed. `_spans` are in the order in which they began, with their cursors."""

    def __init__(self, index: SessionIndex, id_: str) -> None:
        self._home, self._id = index, id_
        self._news = index.follow(id_, ROOT_ADDRESS)
        self._nodes = dict[str, _GrowingNode]()  # parents before their subagents
        self._spans: Sequence[tuple[Span, _GrowingNode]] = ()
        self._cursors: Sequence[str] = ()
        self._positions = dict[str, int]()  # of each cursor

    def update(self) -> None:
        """Fold new entries, and find out which sessions are being written."""
        has_grown = self._fold_news()
        open_nodes = [node for node in self._nodes.values() if node.view.turn.seq]
        for node in open_nodes:
            node.is_written = self._home.writer(node.session) is not None
        if not all(node.is_written for node in open_nodes):
            has_grown |= (
                self._fold_news()
            )  # the end of a turn comes before that of its writer
        if has_grown:
            self._sort()

    def page(self, limit: int, after: str, label: Labels) -> TimelinePage:
        if after and after not in self._positions:
            raise BadInput(f"no call of this conversation has the address {after!r}")
        begin = self._positions[after] + 1 if after else 0
        end, now = begin + limit, time.time()
        nodes = {address: node.node for address, node in self._nodes.items()}
        rows = tuple(
            timeline_row(span, nodes[node.address], now, label)
            for span, node in self._spans[begin:end]
        )
        return TimelinePage(rows, self._cursors[end - 1] if end < len(self._spans) else "")

    def _fold_news(self) -> bool:
        entries = dict[str, list[Entry]]()
        for address, entry in self._news.new_entries():
            entries.setdefault(address, []).append(entry)
        for address, new in entries.items():
            if address not in self._nodes:
                session = f"{self._id}{address.removeprefix(ROOT_ADDRESS)}"
                self._nodes[address] = _GrowingNode(address, session)
            self._nodes[address].add(new)
        return bool(entries)

    def _sort(self) -> None:
        spans = [
            (span, node) for node in self._nodes.values() for span in node.activity.spans
        ]
        spans.sort(key=lambda pair: began_at(pair[0]))  # at the same moment: parents first
        cursors, positions = list[str](), dict[str, int]()
        for position, (span, node) in enumerate(spans):
            # Call ids are those of a model, which may use one again.
            address = f"{node.address}/{span.id}"
            cursor = address if address not in positions else f"{address}#{position}"
            cursors.append(cursor)
            positions[cursor] = position
        self._spans, self._cursors, self._positions = spans, cursors, positions
