"""The events of a stored session, decoded when they are read, and its views at any of them.

A client that opens a long session shows its end. Decoding and folding all of it would take
most of the time. `session_index` returns the history of a stored session, the recorder that
of an open one. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from refold.journal.events import codec
from refold.journal.events.kinds import Entry
from refold.journal.state.fold import View, fold


class LineEntries(Sequence[Entry]):
    """The entries of `lines`, decoded when they are read.

    `lines` begin with the first line of a journal, and their chain was checked before.
    """

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> "LineEntries": ...
    def __getitem__(self, index: int | slice) -> "Entry | LineEntries":
        if isinstance(index, slice):
            return LineEntries(self._lines[index])
        return codec.decode_line(self._lines[index])

    def of_kinds(self, kinds: frozenset[type]) -> Iterator[Entry]:
        """Yield the entries whose events are of these kinds.

        Other lines are not decoded.
        """
        names = {kind.__name__.encode() for kind in kinds}
        for line in self._lines:
            if codec.kind_name(line) in names:
                yield codec.decode_line(line)


class EventHistory:
    """The history of a session: all `entries`, and some of its `views`, oldest first."""

    def __init__(self, entries: Sequence[Entry], views: Sequence[View] = ()) -> None:
        self.entries, self._views = entries, views

    def view_at(self, seq: int) -> View:
        """Return the view after event `seq`.
        It is folded from the nearest earlier view.
        """
        earlier = (view for view in reversed(self._views) if view.seq <= seq)
        start = next(earlier, View())
        return fold(self.entries[start.seq : seq], start)

    def until(self, seq: int) -> "EventHistory":
        """Return the history as it was after event `seq`."""
        return EventHistory(self.entries[:seq], [v for v in self._views if v.seq <= seq])


def entries_of_kinds(entries: Sequence[Entry], kinds: frozenset[type]) -> Iterator[Entry]:
    """Yield the entries whose events are of these kinds."""
    if isinstance(entries, LineEntries):
        yield from entries.of_kinds(kinds)
    else:
        yield from (entry for entry in entries if type(entry.event) in kinds)
