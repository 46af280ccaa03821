"""Following the journals: what is new in them is read on from where it was left.

A journal of which the last line that we know still stands in its place is the one we know;
any other was cut, replaced or written anew, and is read from its start. Each piece of work
is one transaction: whoever is stopped in it, in whatever way, leaves a good file behind,
and whoever comes at the same time waits for a moment and finds it done.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from refold.errors import Corrupt
from refold.journal import codec, lines
from refold.journal.catalogue import card as cards
from refold.journal.catalogue import words
from refold.journal.catalogue.card import Card
from refold.journal.catalogue.tables import Read, Row, Tables
from refold.journal.codec import Head
from refold.journal.seen import Seen, Stamp, stamp_of

_PIECE = 0.25  # seconds of work in one transaction; others may want to write, too
_MANY = 1_000  # messages held in memory
_BUFFER = 1 << 16
Place = Callable[[str], Path]  # the directory of a session
Tell = Callable[[int, int], None]  # so many of so many are done


class Indexing:
    """Brings the tables up to what stands in the journals, the newest first.

    `until` is when to stop, by the monotonic clock; `tell` hears how far it is.
    """

    def __init__(
        self, tables: Tables, place: Place, until: float, tell: Tell = lambda _, __: None
    ) -> None:
        self._tables, self._place = tables, place
        self._until, self._tell = until, tell

    def run(self, there: Seen) -> bool:
        """False if there was no time for all."""
        known = self._tables.stamps()
        gone = [id_ for id_ in known if id_.partition("/")[0] not in there.stamps]
        new = [id_ for id_ in there.ids if known.get(id_) != there.stamps[id_]]
        return self._all([*gone, *new, *self._children(known)])

    def _children(self, known: Mapping[str, Stamp]) -> Iterator[str]:
        """Those in whose journals something is new. Their parents may know nothing of it."""
        for card in self._tables.with_children():
            for name in card.children:
                child = f"{card.id}/{name}"
                if known.get(child) != stamp_of(self._file(child)):
                    yield child

    def _all(self, left: Sequence[str]) -> bool:
        done = 0
        while done < len(left):
            if time.monotonic() >= self._until:
                return False
            self._tables.begin()
            try:
                ends = time.monotonic() + _PIECE
                while done < len(left) and time.monotonic() < ends:
                    self._one(left[done])
                    done += 1
                self._tables.commit()
            except BaseException:
                self._tables.roll_back()
                raise
            self._tell(done, len(left))
        return True

    def _one(self, id_: str) -> None:
        """Read on in one session, and in the children that it has."""
        file = self._file(id_)
        row, stamp = self._tables.row(id_), stamp_of(file)
        if stamp is None:
            self._forget(id_)
            return
        if row is None or row.read.stamp != stamp:  # else another process was faster
            card = self._read(id_, file, stamp, row)
            for child in card.children:
                self._one(f"{id_}/{child}")

    def _forget(self, id_: str) -> None:
        for below in self._tables.ids_below(id_):
            if (row := self._tables.row(below)) is not None:
                self._tables.forget(row.key)

    def _read(self, id_: str, file: str, stamp: Stamp, row: Row | None) -> Card:
        try:
            with open(file, "rb", buffering=_BUFFER) as opened:
                if row is None or not _goes_on(row, opened):
                    row = self._afresh(id_)
                reading = _Reading(row.card, row.read)
                for found in reading.pieces(opened):
                    self._tables.put_words(row.key, found)
            card, read = reading.card, reading.read
        except OSError as error:
            row = self._afresh(id_)
            card, read = (
                Card(id_, damage=f"{file} cannot be read: {error.strerror}"),
                Read(),
            )
            stamp = Stamp()  # to be tried again: a change of rights leaves no trace
        card = replace(card, changed=stamp.changed)
        self._tables.put(row.key, card, replace(read, stamp=stamp))
        return card

    def _afresh(self, id_: str) -> Row:
        if (row := self._tables.row(id_)) is not None:
            self._tables.forget(row.key)
        return Row(self._tables.add(Card(id_)), Card(id_), Read())

    def _file(self, id_: str) -> str:
        return os.path.join(self._place(id_), lines.NAME)


def read_card(id_: str, file: Path) -> Card:
    """The same of one session, without any tables. Raises `OSError`."""
    reading = _Reading(Card(id_), Read(), cards.HEARS)
    with file.open("rb", buffering=_BUFFER) as opened:
        changed = os.fstat(opened.fileno()).st_mtime_ns / 1e9
        for _ in reading.pieces(opened):
            pass
    return replace(reading.card, changed=changed)


class _Reading:
    """A journal on its way in. `card` and `read` are as far as it was read."""

    def __init__(
        self, card: Card, read: Read, wanted: frozenset[str] = cards.HEARS | words.HEARS
    ) -> None:
        self.card, self.read, self._wanted = card, read, wanted
        self._size = 0  # of the line that is looked at

    def pieces(self, file: BinaryIO) -> Iterator[list[tuple[int, str, str]]]:
        """(seq, who, text) of what can be found in it, up to its end or to where it breaks."""
        found = list[tuple[int, str, str]]()
        file.seek(self.read.upto)
        try:
            for known, head in codec.follow(
                self._lines(file), Head(self.card.events, self.read.h or Head().h)
            ):
                event = cards.loaded(known, self._wanted)
                self.card = cards.after(self.card, known, event)
                upto = self.read.upto + self._size
                self.read = Read(Stamp(), upto, self._size, head.h)
                if event is not None and (said := words.words_of(event)) is not None:
                    found.append((head.seq, *said))
                    if len(found) >= _MANY:
                        yield found
                        found = []
        except Corrupt as error:
            self.card = replace(self.card, damage=f"{file.name}: {error}")
        yield found

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Whole ones. Half of one is just being written."""
        for line in file:
            if line.endswith(b"\n"):
                self._size = len(line)
                yield line[:-1]


def _goes_on(row: Row, file: BinaryIO) -> bool:
    """Is this the journal we know, with nothing changed but what comes after?"""
    read = row.read
    if row.card.damage or not read.last:
        return False
    file.seek(read.upto - read.last)
    line = file.read(read.last)
    return line.endswith(b"\n") and line.startswith(codec.start_of(read.h))
