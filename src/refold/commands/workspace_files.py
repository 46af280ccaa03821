"""Finds files of the workspace by parts of their paths: `@enparser` finds engine/parser.py.

The files are listed in a background thread. The list is made again after some seconds. It
consists of pieces, so that a search can begin before it is complete.
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
_MAX_FILES = 200_000
_PIECE_NAMES = 2_000  # names that are searched at once
_MAX_OFFERS = 50
_MIN_SIMILARITY = 75  # of 100: the score of a mistyped name
# Files that are listed last, because they are rarely meant.
_RARELY_NAMED = re.compile(
    r"(?:^|/)(?:\.|(?:__pycache__|node_modules)/)|\.(?:pyc|o|class)$"
)


class WorkspaceFiles:
    """Lists the files of a directory, and searches the list.

    `directory` returns the path of the directory, which may change between searches. `names`
    yields the paths of all files below it.
    """

    def __init__(
        self,
        directory: Callable[[], str],
        names: Callable[[str], Iterator[str]] = file_names,
    ) -> None:
        self._directory, self._names = directory, names
        self._news = Condition()
        self._listed_directory, self._listed_at = "", 0.0
        self._pieces: tuple[tuple[str, ...], ...] = ()
        self._listing = False

    def find(self, query: str) -> Sequence[str]:
        """Return the files that match `query`, the best first.

        Call this in a thread, because the first call waits some time for the list.
        """
        pieces = self._current_pieces()
        best = nsmallest(_MAX_OFFERS, _matching_paths(query, pieces))
        return [path for *_, path in best] or _similar_names(query, pieces)

    def _current_pieces(self) -> Sequence[Sequence[str]]:
        """Return the present list, in pieces. If it is old, start a thread that lists again."""
        directory = self._directory()
        with self._news:
            moved = directory != self._listed_directory
            old = time.monotonic() - self._listed_at > _FRESH_SECONDS
            if (moved or old) and not self._listing:
                self._listing = True
                if moved:
                    self._listed_directory, self._pieces = directory, ()
                Thread(target=self._list, args=(directory,), daemon=True).start()
            if not self._pieces:
                self._news.wait_for(lambda: not self._listing, _OFFER_SECONDS)
            return self._pieces

    def _list(self, directory: str) -> None:
        """List the files.

        As soon as the new list is longer than the old one, it replaces it.
        """
        new = list[tuple[str, ...]]()
        with suppress(OSError):
            for piece in _pieces(self._names(directory)):
                new.append(piece)
                with self._news:
                    if len(new) > len(self._pieces):
                        self._pieces = tuple(new)
        with self._news:
            self._pieces, self._listed_at = tuple(new), time.monotonic()
            self._listing = False
            self._news.notify_all()


def _pieces(names: Iterator[str]) -> Iterator[tuple[str, ...]]:
    """Yield the first `_MAX_FILES` names in tuples of `_PIECE_NAMES`."""
    piece, remaining = list[str](), _MAX_FILES
    for name in names:
        piece.append(name)
        remaining -= 1
        if len(piece) == _PIECE_NAMES or not remaining:
            yield tuple(piece)
            piece = []
            if not remaining:
                return
    if piece:
        yield tuple(piece)


def _matching_paths(
    query: str, pieces: Iterable[Sequence[str]]
) -> Iterator[tuple[bool, int, float, int, str]]:
    """Yield a sort key for each path that contains the characters of `query` in their order.

    The smallest key is the best match. A key consists of: whether such files are rarely named,
    the rank, the negative similarity, the length of the path, and the path.
    """
    from rapidfuzz import fuzz

    letters = [re.escape(letter) for letter in query.lower() if not letter.isspace()]
    # each letter after any characters that differ from it
    pattern = re.compile("".join(f"[^{x}\n]*{x}" for x in letters), re.IGNORECASE)
    whole = query.lower()
    for piece in pieces:
        for path in piece:
            if pattern.match(path):
                low = path.lower()
                name = low[low.rfind("/") + 1 :]
                rank = _rank(whole, name, low)
                likeness = fuzz.ratio(whole, name)
                if rank == _SCATTERED_RANK:
                    likeness += fuzz.partial_ratio(whole, low)
                is_rarely_named = _RARELY_NAMED.search(low) is not None
                yield is_rarely_named, rank, -likeness, len(path), path


_SCATTERED_RANK = 3


def _rank(query: str, name: str, path: str) -> int:
    """Return how well a path matches `query`, as a number; 0 is best."""
    if name.startswith(query):
        return 0
    if query in name:
        return 1
    return 2 if query in path else _SCATTERED_RANK


def _similar_names(query: str, pieces: Iterable[Sequence[str]]) -> Sequence[str]:
    """Return paths with names similar to `query`, which may contain a typing error."""
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
