"""The catalogue of all sessions. Its answers are current, whatever happens to its file.

Each query first indexes new lines of the journals (`indexer`). A broken file is rebuilt once.
If the file cannot be used at all, each query builds a temporary one, which is slower, and the
user gets a notice.
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
_MAX_HITS_PER_SESSION = 3  # so that a long session does not hide all others
T = TypeVar("T")


class RebuildResult(Struct, frozen=True):
    """The size of a rebuilt catalogue."""

    sessions: int
    messages: int
    seconds: float
    bytes: int


class Catalogue:
    """The sessions under `root`. `place` returns a session's directory.

    `tell` is called with the progress, and `notice` once, with the reason why the file of
    the catalogue cannot be used. Every method waits for the disk: call it in a thread.
    Raises `BadInput` if `root` cannot be read.
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
        self._is_file_unusable = False

    def newest_first(
        self,
        wanted: CardFilter,
        *,
        after: ListPosition | None = None,
        seconds: float = inf,
    ) -> Iterator[Card]:
        return select_cards(self.cards(seconds=seconds), wanted, after)

    def card(self, session: str, *, seconds: float = inf) -> Card | None:
        """Return the card of a session or a subagent; None if there is none."""

        def read_card_of(tables: Tables) -> Card | None:
            self._index(tables, seconds)
            row = tables.row(session)
            return row.card if row else None

        def find_card() -> Card | None:
            cards = self._read_journals(children="/" in session)
            return next((card for card in cards if card.id == session), None)

        return self._use_file(read_card_of, find_card)

    def asking(self, sessions: Collection[str]) -> frozenset[str]:
        """Return those of `sessions` that wait for the user, themselves or in a subagent."""
        if not sessions:
            return frozenset()

        def find_asking(tables: Tables) -> Iterable[Card]:
            return [card for id_ in sessions for card in tables.cards_below(id_)]

        cards = self._use_file(find_asking, lambda: self._read_journals(children=True))
        asking = {card.id.partition("/")[0] for card in cards if card.open and card.asking}
        return frozenset(sessions) & asking

    def match(self, text: str) -> Card | None:
        return match_card(text, self.cards())

    def cards(self, *, seconds: float = inf, children: bool = False) -> list[Card]:
        """Return the cards of all sessions, the last written first; with `children`, of
        subagents, too.

        Indexing stops after `seconds`: the result is what is indexed by then.
        """

        def list_cards(tables: Tables) -> list[Card]:
            self._index(tables, seconds)
            return _newest_first(tables.cards(children=children))

        return self._use_file(list_cards, lambda: self._read_journals(children=children))

    def search(
        self,
        text: str,
        limit: int,
        matches: Callable[[Card], bool] = lambda _: True,
        *,
        seconds: float = inf,
    ) -> list[Hit]:
        """Return at most `limit` hits for `text`, the best first, whose card satisfies
        `matches`.

        Indexing stops after `seconds`: older hits may then be missing. Raises `BadInput` if
        `text` has no term to search for.
        """
        expression = search_expression(text)

        def find_hits(tables: Tables) -> list[Hit]:
            """Index new lines in the tables, and return the best hits."""
            self._index(tables, seconds)
            hits = limit_per_session(tables.search(expression), matches)
            return list(islice(hits, limit))

        return self._use_file(find_hits)

    def last_cards(self) -> dict[str, Card]:
        """Return the cards by id, as the last query found them. They may be outdated."""
        import apsw

        if not self.path.exists():
            return {}
        try:
            cards = self._open_and_run(self.path, Tables.whole_cards)
        except (apsw.Error, OSError):  # other queries report it
            return {}
        return {card.id: card for card in cards}

    def freshen(self, seconds: float = inf) -> bool:
        """Index new lines for at most `seconds`. Return False if lines are left."""

        def read(tables: Tables) -> bool:
            tables.wait_at_most(seconds)  # another writer may be indexing the same lines
            return self._index(tables, seconds)

        return self._use_file(read, lambda: False)

    def rebuild(self) -> RebuildResult:
        """Index all journals again in a temporary file, and copy its tables to the
        catalogue.
        """
        began = time.monotonic()

        def build(new_tables: Tables) -> tuple[int, int]:
            """Index all journals in `new_tables`, and copy these tables to the catalogue.

            Return the numbers of sessions and messages.
            """
            self._index(new_tables, inf)
            if self._root.is_dir():
                is_filled = self._use_file(partial(_fill_tables, new_tables), lambda: False)
                if not is_filled:
                    raise RefoldError(f"the catalogue {self.path} is unchanged: see above")
            return new_tables.count()

        sessions, messages = self._use_private_file(build)
        return RebuildResult(sessions, messages, time.monotonic() - began, _size(self.path))

    def _index(self, tables: Tables, seconds: float) -> bool:
        """Index new lines for at most `seconds`. Return False if lines are left."""
        deadline = time.monotonic() + seconds
        indexer = Indexer(tables, self._place, deadline, self._tell)
        return indexer.run(list_sessions(self._root))

    def _read_journals(self, *, children: bool) -> list[Card]:
        """Return all cards, read from the journals and not from the file of the catalogue."""
        cards = list[Card]()
        to_read = list(reversed(list_sessions(self._root).ids))
        while to_read:
            id_ = to_read.pop()
            try:
                card = read_card(id_, self._place(id_) / log_file.FILE_NAME)
            except FileNotFoundError:  # just deleted, or a subagent without a journal
                continue
            except OSError as error:
                card = Card(id_, damage=f"it cannot be read: {error.strerror}")
            cards.append(card)
            to_read += [f"{id_}/{name}" for name in card.children if children]
            self._tell(len(cards), len(cards) + len(to_read))
        return _newest_first(cards)

    def _use_file(
        self, function: Callable[[Tables], T], otherwise: Callable[[], T] | None = None
    ) -> T:
        """Return the result of `function` for the tables of the file. A broken file is made
        again.

        If the file cannot be used at all, return the result of `otherwise`. Without `otherwise`,
        call `function` for the tables of a temporary file.
        """
        import apsw  # imported late because it is slow: only lists and searches need it

        # The errors of a file that is not a valid database, or not of this version.
        broken = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError)
        for may_retry in (True, False):
            if self._is_file_unusable or not self._root.is_dir():
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
                self._is_file_unusable = True
        return otherwise() if otherwise else self._use_private_file(function)

    def _use_private_file(self, function: Callable[[Tables], T]) -> T:
        """Return the result of `function` for the tables of a temporary file."""
        import apsw

        try:
            return self._open_and_run(PRIVATE_FILE, function)
        except apsw.Error as error:
            raise RefoldError(
                f"no temporary catalogue can be written ({explain(error)}): make room on the "
                "disk, or set SQLITE_TMPDIR to a directory with more"
            ) from error

    def _open_and_run(self, path: Path, function: Callable[[Tables], T]) -> T:
        """Return the result of `function` for the tables of this file."""
        tables = open_tables(path)
        try:
            return function(tables)
        finally:
            tables.close()


def _fill_tables(new_tables: Tables, tables: Tables) -> bool:
    """Replace the content of `tables` by that of `new_tables`, and return True as a sign of
    success.
    """
    tables.replace_content(new_tables)
    return True


def limit_per_session(
    hits: Iterator[Hit], matches: Callable[[Card], bool]
) -> Iterator[Hit]:
    """Yield the hits whose card satisfies `matches`, at most `_MAX_HITS_PER_SESSION` of a
    session.
    """
    hits_of = dict[str, int]()
    for hit in hits:
        id_ = hit.card.id
        if hits_of.get(id_, 0) < _MAX_HITS_PER_SESSION and matches(hit.card):
            hits_of[id_] = hits_of.get(id_, 0) + 1
            yield hit


def _newest_first(cards: list[Card]) -> list[Card]:
    return sorted(cards, key=position_of, reverse=True)


def _inode(path: Path) -> int:
    """Return the inode of a file; 0 if it cannot be read."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
