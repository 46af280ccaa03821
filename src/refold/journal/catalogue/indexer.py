"""Indexes the journals: reads each from the position where the last run stopped.

If the last known line of a journal is unchanged, only the lines after it are read.
Otherwise the journal was cut or replaced, and is read from its start. The work is split
into short transactions, even within a long journal, so that an interruption leaves a valid
file, and other processes wait only briefly and then share the work.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from refold.errors import Corrupt, WrongFormat
from refold.journal.catalogue import search_text
from refold.journal.catalogue import session_card as cards
from refold.journal.catalogue.database import CatalogueRow, ReadPosition, Tables
from refold.journal.catalogue.session_card import Card
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.store import log_file
from refold.journal.store.session_files import FileStamp, SessionListing, stamp_of

_TRANSACTION_SECONDS = 0.25  # of work in one transaction
# Pause between transactions, longer than the poll interval of other writers.
_PAUSE_SECONDS = 0.005
_MAX_MESSAGES = 1_000  # held in memory
_MAX_READ_BYTES = 1 << 21  # in one piece of work
_BUFFER_BYTES = 1 << 16
Place = Callable[[str], Path]  # the directory of a session
Tell = Callable[[int, int], None]  # number of sessions done, and of all sessions


class Indexer:
    """Updates the tables from the journals, the newest session first.

    `deadline` is the time to stop, by the monotonic clock; `tell` is called with the
    progress.
    """

    def __init__(
        self,
        tables: Tables,
        place: Place,
        deadline: float,
        tell: Tell = lambda _, __: None,
        transaction_seconds: float = _TRANSACTION_SECONDS,
    ) -> None:
        self._tables, self._place = tables, place
        self._deadline, self._tell = deadline, tell
        self._transaction_seconds = transaction_seconds
        self._transaction_deadline = 0.0

    def run(self, listing: SessionListing) -> bool:
        """Index all sessions. Returns False if there was not enough time."""
        indexed = self._tables.stamps()
        gone = [id_ for id_ in indexed if id_.partition("/")[0] not in listing.stamps]
        new = [id_ for id_ in listing.ids if indexed.get(id_) != listing.stamps[id_]]
        return self._index_all([*gone, *new, *self._changed_subagents(indexed)])

    def _changed_subagents(self, stamps: Mapping[str, FileStamp]) -> Iterator[str]:
        """Yield the subagents whose journals have changed since they were indexed.

        The journals of their parents may be unchanged.
        """
        for card in self._tables.with_children():
            for name in card.children:
                child = f"{card.id}/{name}"
                if stamps.get(child) != stamp_of(self._journal_file(child)):
                    yield child

    def _index_all(self, ids: Sequence[str]) -> bool:
        """Index the sessions, in transactions with pauses. Return False if the time is up."""
        count = 0
        waiting = list(reversed(ids))
        while waiting:
            if time.monotonic() >= self._deadline:
                return False
            self._tables.begin()
            try:
                count += self._index_within_time(waiting)
                self._tables.commit()
            except BaseException:
                self._tables.roll_back()
                raise
            self._tell(count, count + len(waiting))
            if waiting:
                time.sleep(_PAUSE_SECONDS)
        return True

    def _index_within_time(self, remaining: list[str]) -> int:
        """Index sessions from the end of `remaining` until the time is up, but at least a part
        of the last one.

        Return how many sessions are now completely indexed.
        """
        self._transaction_deadline = time.monotonic() + self._transaction_seconds
        count = 0
        while remaining:
            id_ = remaining[-1]
            children = self._index_part(id_)
            if children is None:  # a part of it is left
                break
            remaining.pop()
            remaining += [f"{id_}/{child}" for child in reversed(children)]
            count += 1
            if time.monotonic() >= self._transaction_deadline:
                break
        return count

    def _index_part(self, id_: str) -> Sequence[str] | None:
        """Index more lines of a session.

        Return its subagents, or None if lines are left.
        """
        file = self._journal_file(id_)
        row = self._tables.row(id_)
        stamp = stamp_of(file)
        if stamp is None:
            return () if self._delete_session(id_) else None
        if row is not None and row.read.stamp == stamp:  # another process was faster
            return ()
        return self._read_journal(id_, file, stamp, row)

    def _delete_session(self, id_: str) -> bool:
        """Delete a session with its subagents from the tables. Return False if a part is
        left.
        """
        for row_id in self._tables.ids_below(id_):
            row = self._tables.row(row_id)
            if row is not None and not self._remove_row(row):
                return False
        return True

    def _read_journal(
        self, id_: str, file: str, stamp: FileStamp, row: CatalogueRow | None
    ) -> Sequence[str] | None:
        """Index more lines of a journal. Return its subagents, or None if lines are left."""
        try:
            with open(file, "rb", buffering=_BUFFER_BYTES) as opened:
                if row is not None and not _is_unchanged(row, opened):
                    if not self._remove_row(row):
                        return None
                    row = None
                row = row or self._add_row(id_)
                reading = _JournalReading(row.card, row.read)
                for words in reading.pieces(opened):
                    self._tables.store_words(row.key, words)
                    if time.monotonic() >= self._transaction_deadline:
                        break
        except OSError as error:
            problem = f"{file} cannot be read: {error.strerror}"
            return self._record_unreadable(id_, row, stamp, problem)
        card = replace(reading.card, changed=stamp.mtime_seconds)
        if not reading.is_over:
            self._tables.update_row(row.key, card, reading.read)
            return None
        # With the stamp, the session is not read again before its journal changes.
        self._tables.update_row(row.key, card, replace(reading.read, stamp=stamp))
        return card.children

    def _record_unreadable(
        self, id_: str, row: CatalogueRow | None, stamp: FileStamp, problem: str
    ) -> Sequence[str] | None:
        """Replace the row of a session whose journal cannot be read.

        Return () because no subagents are known, or None if a part of the old row is left. The
        new row has no stamp, so the session is read again the next time: its file may become
        readable without a change.
        """
        if row is not None and not self._remove_row(row):
            return None
        card = Card(id_, damage=problem, changed=stamp.mtime_seconds)
        self._tables.update_row(self._add_row(id_).key, card, ReadPosition())
        return ()

    def _add_row(self, id_: str) -> CatalogueRow:
        return CatalogueRow(self._tables.add(Card(id_)), Card(id_), ReadPosition())

    def _remove_row(self, row: CatalogueRow) -> bool:
        """Delete a row with its texts until the time is up. Return False if a part is left."""
        while self._tables.delete_part(row):
            if time.monotonic() >= self._transaction_deadline:
                return False
        return True

    def _journal_file(self, id_: str) -> str:
        return os.path.join(self._place(id_), log_file.FILE_NAME)


def read_card(id_: str, file: Path) -> Card:
    """Return the card of one session, read from its journal. Raises `OSError`."""
    reading = _JournalReading(Card(id_), ReadPosition(), cards.CARD_KINDS)
    with file.open("rb", buffering=_BUFFER_BYTES) as opened:
        changed = os.fstat(opened.fileno()).st_mtime_ns / 1e9
        for _ in reading.pieces(opened):
            pass
    return replace(reading.card, changed=changed)


class _JournalReading:
    """A journal that is being indexed. `card` and `read` cover the lines read so far."""

    def __init__(
        self,
        card: Card,
        read: ReadPosition,
        kinds: frozenset[str] = cards.CARD_KINDS | search_text.SEARCH_KINDS,
    ) -> None:
        self.card, self.read, self._wanted = card, read, kinds
        self._line_size = 0  # of the current line
        self.is_over = False

    def pieces(self, file: BinaryIO) -> Iterator[list[tuple[int, str, str]]]:
        """Yield (seq, who, text) of everything to index, up to the end or the first damage.

        After each piece, the work can be interrupted and resumed.
        """
        words = list[tuple[int, str, str]]()
        piece_start = self.read.upto
        file.seek(piece_start)
        start_head = Head(self.card.events, self.read.h or Head().h)
        try:
            for line, head in codec.follow(self._lines(file), start_head):
                event = cards.load_event(line, self._wanted)
                self.card = cards.apply_line(self.card, line, event)
                line_end = self.read.upto + self._line_size
                self.read = ReadPosition(FileStamp(), line_end, self._line_size, head.h)
                text = search_text.words_of(event) if event is not None else None
                if text is not None:
                    words.append((head.seq, *text))
                read_bytes = line_end - piece_start
                if len(words) >= _MAX_MESSAGES or read_bytes >= _MAX_READ_BYTES:
                    yield words
                    words, piece_start = [], line_end
        except WrongFormat as error:
            about = replace(self.card.about, directory=error.directory)
            self.card = replace(self.card, about=about, damage=f"{file.name}: {error}")
        except Corrupt as error:
            self.card = replace(self.card, damage=f"{file.name}: {error}")
        self.is_over = True
        yield words

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield complete lines. An incomplete last line is still being written."""
        for line in file:
            if line.endswith(b"\n"):
                self._line_size = len(line)
                yield line[:-1]


def _is_unchanged(row: CatalogueRow, file: BinaryIO) -> bool:
    """Whether the line that was read last is still in its place.

    It contains a hash of all lines before it. A damaged journal counts as changed.
    """
    read = row.read
    if row.card.damage or not read.last:
        return False
    file.seek(read.upto - read.last)
    line = file.read(read.last)
    return line.endswith(b"\n") and line.startswith(codec.line_prefix(read.h))
