"""The catalogue of all sessions: always current, whatever happens to its file.

Each query first indexes what is new in the journals (`indexer`). A broken file is rebuilt
once. If the file cannot be written, a private one is made for this query, which is slower,
and the user gets a notice.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from refold.errors import RefoldError
from refold.journal.catalogue.card_filter import (
    CardFilter,
    ListPosition,
    position_of,
    select_cards,
)
from refold.journal.catalogue.database import Tables, open_tables
from refold.journal.catalogue.indexer import Indexer, Place, Tell, read_card
from refold.journal.catalogue.search_text import search_expression
from refold.journal.catalogue.session_card import Card, Hit, match_card
from refold.journal.store import log_file
from refold.journal.store.session_files import list_sessions
from refold.journal.store.sqlite_file import PRIVATE_FILE, delete_file, explain

FILE_NAME = "catalogue.sqlite"
_MAX_HITS_PER_SESSION = 3  # a long session would hide all others
T = TypeVar("T")


class RebuildResult(Struct, frozen=True):
    """The size of a rebuilt catalogue."""

    sessions: int
    messages: int
    seconds: float
    bytes: int


class Catalogue:
    """The sessions under `root`. `place` gives a session's directory, `tell` gets progress.

    `notice` gets, once, why the file of the catalogue could not be used. Every method waits
    for the disk: call it in a thread. Raises `BadInput` if `root` cannot be read.
    """

    def __init__(
        self,
        root: Path,
        place: Place,
        *,
        tell: Tell = lambda _, __: None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path = root.parent / FILE_NAME
        self._root, self._place = root, place
        self._tell, self._notice = tell, notice
        self._private = False

    def newest_first(
        self,
        wanted: CardFilter,
        *,
        after: ListPosition | None = None,
        seconds: float = inf,
    ) -> Iterator[Card]:
        return select_cards(self.cards(seconds=seconds), wanted, after)

    def card(self, session: str, *, seconds: float = inf) -> Card | None:
        def read_card_of(tables: Tables) -> Card | None:
            self._index(tables, seconds)
            row = tables.row(session)
            return row.card if row else None

        def find_card() -> Card | None:
            cards = self._read(children="/" in session)
            return next((card for card in cards if card.id == session), None)

        return self._use_file(read_card_of, find_card)

    def asking(self, sessions: Collection[str]) -> frozenset[str]:
        if not sessions:
            return frozenset()

        def find_asking(tables: Tables) -> Iterable[Card]:
            return [card for id_ in sessions for card in tables.cards_below(id_)]

        cards = self._use_file(find_asking, lambda: self._read(children=True))
        asking = {card.id.partition("/")[0] for card in cards if card.open and card.asking}
        return frozenset(sessions) & asking

    def match(self, text: str) -> Card | None:
        return match_card(text, self.cards())

    def cards(self, *, seconds: float = inf, children: bool = False) -> list[Card]:
        """All sessions, the last written first; after `seconds`, those indexed by then."""

        def list_cards(tables: Tables) -> list[Card]:
            self._index(tables, seconds)
            return _newest_first(tables.cards(children=children))

        return self._use_file(list_cards, lambda: self._read(children=children))

    def search(
        self,
        text: str,
        limit: int,
        matches: Callable[[Card], bool] = lambda _: True,
        *,
        seconds: float = inf,
    ) -> list[Hit]:
        """The best matches. Raises `BadInput` if there is nothing to search for."""
        expression = search_expression(text)

        def find_hits(tables: Tables) -> list[Hit]:
            self._index(tables, seconds)
            return list(
                islice(limit_per_session(tables.search(expression), matches), limit)
            )

        return self._use_file(find_hits)

    def last_cards(self) -> dict[str, Card]:
        """The cards as of the last query, without indexing: they may be out of date."""
        import apsw

        if not self.path.exists():
            return {}
        try:
            cards = self._open_and_run(self.path, Tables.whole_cards)
        except (apsw.Error, OSError):  # other queries report it
            return {}
        return {card.id: card for card in cards}

    def freshen(self, seconds: float = inf) -> bool:
        """Index what is new. False if there was not enough time for all of it."""

        def read(tables: Tables) -> bool:
            tables.wait_at_most(seconds)  # another writer may be indexing the same
            return self._index(tables, seconds)

        return self._use_file(read, lambda: False)

    def rebuild(self) -> RebuildResult:
        """Index all journals again in a new file, which then replaces the old one."""
        began = time.monotonic()

        def build(new_tables: Tables) -> tuple[int, int]:
            self._index(new_tables, inf)
            if self._root.is_dir() and not self._use_file(
                partial(_fill_tables, new_tables), lambda: False
            ):
                raise RefoldError(f"the catalogue {self.path} is unchanged: see above")
            return new_tables.count()

        sessions, messages = self._use_private_file(build)
        return RebuildResult(sessions, messages, time.monotonic() - began, _size(self.path))

    def _index(self, tables: Tables, seconds: float) -> bool:
        until = time.monotonic() + seconds
        return Indexer(tables, self._place, until, self._tell).run(
            list_sessions(self._root)
        )

    def _read(self, *, children: bool) -> list[Card]:
        """All cards, read from the journals and not from the file."""
        ids, cards = list_sessions(self._root).ids, list[Card]()
        left = list(reversed(ids))
        while left:
            id_ = left.pop()
            try:
                card = read_card(id_, self._place(id_) / log_file.FILE_NAME)
            except FileNotFoundError:  # just deleted, or a subagent without a journal yet
                continue
            except OSError as error:
                card = Card(id_, damage=f"it cannot be read: {error.strerror}")
            cards.append(card)
            left += [f"{id_}/{name}" for name in card.children if children]
            self._tell(len(cards), len(cards) + len(left))
        return _newest_first(cards)

    def _use_file(
        self, function: Callable[[Tables], T], otherwise: Callable[[], T] | None = None
    ) -> T:
        """Use the file; if broken, rebuild it; then try `otherwise`, or a private file."""
        import apsw  # slow to import; only lists and searches need it

        broken = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError)
        for may_retry in (True, False):
            if self._private or not self._root.is_dir():
                break
            inode = _inode(self.path)
            try:
                return self._open_and_run(self.path, function)
            except (apsw.Error, OSError) as error:
                if may_retry and isinstance(error, broken):
                    delete_file(self.path, inode)
                    continue
                self._notice(
                    f"the catalogue {self.path} cannot be used ({explain(error)}): every "
                    "session is read, which takes longer"
                )
                self._private = True
        return otherwise() if otherwise else self._use_private_file(function)

    def _use_private_file(self, function: Callable[[Tables], T]) -> T:
        """Use a private file."""
        import apsw

        try:
            return self._open_and_run(PRIVATE_FILE, function)
        except apsw.Error as error:
            raise RefoldError(
                f"no temporary catalogue can be written ({explain(error)}): make room on the "
                "disk, or set SQLITE_TMPDIR to a directory with more"
            ) from error

    def _open_and_run(self, path: Path, function: Callable[[Tables], T]) -> T:
        tables = open_tables(path)
        try:
            return function(tables)
        finally:
            tables.close()


def _fill_tables(new_tables: Tables, tables: Tables) -> bool:
    tables.replace_content(new_tables)
    return True


def limit_per_session(
    hits: Iterator[Hit], matches: Callable[[Card], bool]
) -> Iterator[Hit]:
    """Yield the hits in `matches` sessions, at most `_MAX_HITS_PER_SESSION` of each."""
    of = dict[str, int]()
    for hit in hits:
        id_ = hit.card.id
        if of.get(id_, 0) < _MAX_HITS_PER_SESSION and matches(hit.card):
            of[id_] = of.get(id_, 0) + 1
            yield hit


def _newest_first(cards: list[Card]) -> list[Card]:
    return sorted(cards, key=position_of, reverse=True)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
