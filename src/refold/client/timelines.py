"""The timelines of stored sessions in pages: the rows of one are made once, until its journals grow.

`views.timeline` makes the rows; `stored_sessions` is asked for them. Everything here blocks on the disk.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.journal.session_index import SessionIndex, TreeNews
from refold.journal.state.session_tree import ROOT_ADDRESS
from refold.views.session_tree import Labels
from refold.views.timeline import TimelineRow, timeline

_MAX_TIMELINES = 4  # in memory: of those that are scrolled now
_OPEN_OUTCOMES = ("running", "waiting")  # of rows that still run


class TimelinePage(Struct, frozen=True):
    """`following` is the cursor of the next page; "": there is none."""

    rows: tuple[TimelineRow, ...]
    following: str


class _Timeline(Struct, frozen=True):
    news: TreeNews  # tells whether the journals have grown since
    writer: str
    rows: Sequence[TimelineRow]
    cursors: Sequence[str]  # of each row
    positions: dict[str, int]  # of each cursor


class Timelines:
    """The timelines of the sessions of one home, used by several threads."""

    def __init__(self, home: SessionIndex, label: Labels) -> None:
        self._home, self._label = home, label
        self._known = OrderedDict[str, _Timeline]()
        self._lock = Lock()

    def page(self, id_: str, limit: int, after: str = "") -> TimelinePage:
        """At most `limit` rows behind the row with this cursor.

        Raises `BadInput` if there is none.
        """
        with self._lock:
            current = self._read(id_)
        if after and after not in current.positions:
            raise BadInput(f"no call of this conversation has the address {after!r}")
        begin = current.positions[after] + 1 if after else 0
        end = begin + limit
        now = time.time()
        rows = tuple(_with_time(row, now) for row in current.rows[begin:end])
        return TimelinePage(
            rows, current.cursors[end - 1] if end < len(current.rows) else ""
        )

    def _read(self, id_: str) -> _Timeline:
        known = self._known.pop(id_, None)
        writer = self._home.writer(id_)
        text = writer.text if writer else ""
        if known is None or known.writer != text or known.news.new_entries():
            known = self._make(id_, text)
        self._known[id_] = known
        while len(self._known) > _MAX_TIMELINES:
            self._known.popitem(last=False)
        return known

    def _make(self, id_: str, writer: str) -> _Timeline:
        news = self._home.follow(id_, ROOT_ADDRESS)
        news.new_entries()  # before the rows are made, so that none is missed
        rows = timeline(self._home.tree(id_), time.time(), self._label)
        cursors, positions = list[str](), dict[str, int]()
        for position, row in enumerate(rows):
            # Call ids are those of a model, which may use one again.
            cursor = row.address if row.address not in positions else f"{row.address}#{position}"  # fmt: skip
            cursors.append(cursor)
            positions[cursor] = position
        return _Timeline(news, writer, rows, cursors, positions)


def _with_time(row: TimelineRow, now: float) -> TimelineRow:
    if row.seconds is None or row.outcome not in _OPEN_OUTCOMES:
        return row
    return replace(row, seconds=round(max(0.0, now - row.at), 3))
