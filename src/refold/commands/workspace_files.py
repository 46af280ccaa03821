"""Finds files of the workspace by parts of their names: `@enparser` finds engine/parser.py.

They are listed in the background. A list is valid for some seconds and is searched in
pieces, so that no key waits for all of it.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from threading import Condition, Thread

from refold.client.workspace import file_names

_FRESH_SECONDS = 10.0  # after which the files are listed again
_OFFER_SECONDS = 1.0  # for which a completion waits for the first list
_MOST_FILES = 200_000
_PIECE_NAMES = 2_000  # names that are searched at once
_MAX_OFFERS = 50
_MIN_SIMILARITY = 75  # of 100: the score of a mistyped name
# Listed last: they are rarely meant.
_RARELY_NAMED = re.compile(
    r"(?:^|/)(?:\.|(?:__pycache__|node_modules)/)|\.(?:pyc|o|class)$"
)


class WorkspaceFiles:
    """Lists the files of a directory. `directory` returns its path, and is called for each
    list. `names` yields the names of the files in it.
    """

    def __init__(
        self,
        directory: Callable[[], str],
        names: Callable[[str], Iterator[str]] = file_names,
    ) -> None:
        self._directory, self._names = directory, names
        self._news = Condition()
        self._of, self._at = "", 0.0
        self._pieces: tuple[tuple[str, ...], ...] = ()
        self._listing = False

    def find(self, query: str) -> Sequence[str]:
        """Return the best matches first. Call it in a thread; the first call waits."""
        pieces = self._current_pieces()
        best = nsmallest(_MAX_OFFERS, _matching_paths(query, pieces))
        return [path for *_, path in best] or _similar_names(query, pieces)

    def _current_pieces(self) -> Sequence[Sequence[str]]:
        directory = self._directory()
        with self._news:
            moved = directory != self._of
            old = time.monotonic() - self._at > _FRESH_SECONDS
            if (moved or old) and not self._listing:
                self._listing = True
                if moved:
                    self._of, self._pieces = directory, ()
                Thread(target=self._list, args=(directory,), daemon=True).start()
            if not self._pieces:
                self._news.wait_for(lambda: not self._listing, _OFFER_SECONDS)
            return self._pieces

    def _list(self, directory: str) -> None:
        new = list[tuple[str, ...]]()
        with suppress(OSError):
            for piece in _pieces(self._names(directory)):
                new.append(piece)
                with self._news:
                    if len(new) > len(self._pieces):
                        self._pieces = tuple(new)
        with self._news:
            self._pieces, self._at, self._listing = tuple(new), time.monotonic(), False
            self._news.notify_all()


def _pieces(names: Iterator[str]) -> Iterator[tuple[str, ...]]:
    piece, left = list[str](), _MOST_FILES
    for name in names:
        piece.append(name)
        left -= 1
        if len(piece) == _PIECE_NAMES or not left:
            yield tuple(piece)
            piece = []
            if not left:
                return
    if piece:
        yield tuple(piece)


def _matching_paths(
    query: str, pieces: Iterable[Sequence[str]]
) -> Iterator[tuple[bool, int, float, int, str]]:
    """Yield paths with these characters in this order, each with its rank."""
    from rapidfuzz import fuzz

    letters = [re.escape(letter) for letter in query.lower() if not letter.isspace()]
    order = re.compile("".join(f"[^{x}\n]*{x}" for x in letters), re.IGNORECASE)
    whole = query.lower()
    for piece in pieces:
        for path in piece:
            if order.match(path):
                low = path.lower()
                name = low[low.rfind("/") + 1 :]
                place = _rank(whole, name, low)
                likeness = fuzz.ratio(whole, name)
                if place == _SCATTERED_RANK:
                    likeness += fuzz.partial_ratio(whole, low)
                last = _RARELY_NAMED.search(low) is not None
                yield last, place, -likeness, len(path), path


_SCATTERED_RANK = 3


def _rank(query: str, name: str, path: str) -> int:
    if name.startswith(query):
        return 0
    if query in name:
        return 1
    return 2 if query in path else _SCATTERED_RANK


def _similar_names(query: str, pieces: Iterable[Sequence[str]]) -> Sequence[str]:
    """Return similar names if no path has these characters: one may be mistyped."""
    from rapidfuzz import fuzz, process

    matches = list[tuple[float, str]]()
    name = query.lower().rpartition("/")[2]
    if not name:
        return ()
    for piece in pieces:
        names = [path.lower().rpartition("/")[2] for path in piece]
        for _, score, index in process.extract(
            name, names, scorer=fuzz.ratio, limit=5, score_cutoff=_MIN_SIMILARITY
        ):
            matches.append((-score, piece[index]))
    return [path for _, path in nsmallest(_MAX_OFFERS, matches)]
