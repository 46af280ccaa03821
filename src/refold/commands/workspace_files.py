"""Finds files of the workspace by parts of their paths: `@enparser` finds engine/parser.py.

The files are listed in a background thread. The list is made again after some seconds. It
consists of pieces, so that a search can begin before it is complete.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import islice
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
        self._changed = Condition()  # notified when a list is complete; guards the rest
        self._listed_directory, self._listed_at = "", 0.0
        self._pieces: tuple[tuple[str, ...], ...] = ()
        self._is_listing = False

    def find(self, query: str) -> Sequence[str]:
        """Return the files that match `query`, the best first.

        Call this in a thread, because the first call waits some time for the list.
        """
        pieces = self._current_pieces()
        best = nsmallest(_MAX_OFFERS, _matching_paths(query, pieces))
        return [path for *_, path in best] or _similar_names(query, pieces)

    def _current_pieces(self) -> Sequence[Sequence[str]]:
        """Return the present list, in pieces. If it is old, start a thread that lists again.

        If there is no list of the directory yet, wait up to `_OFFER_SECONDS` for it, and then
        return the pieces that have been listed by then.
        """
        directory = self._directory()
        with self._changed:
            is_other_directory = directory != self._listed_directory
            is_old = time.monotonic() - self._listed_at > _FRESH_SECONDS
            if (is_other_directory or is_old) and not self._is_listing:
                self._is_listing = True
                if is_other_directory:
                    self._listed_directory, self._pieces = directory, ()
                Thread(target=self._list, args=(directory,), daemon=True).start()
            if not self._pieces:
                self._changed.wait_for(lambda: not self._is_listing, _OFFER_SECONDS)
            return self._pieces

    def _list(self, directory: str) -> None:
        """List the files of `directory`, in a thread.

        Searches use the old list until the new one is longer, so that a new list that has just
        begun does not hide files.
        """
        new_pieces = list[tuple[str, ...]]()
        with suppress(OSError):  # what was listed before the error is kept
            for piece in _pieces(self._names(directory)):
                new_pieces.append(piece)
                with self._changed:
                    if len(new_pieces) > len(self._pieces):
                        self._pieces = tuple(new_pieces)
        with self._changed:
            self._pieces = tuple(new_pieces)
            self._listed_at = time.monotonic()
            self._is_listing = False
            self._changed.notify_all()


def _pieces(names: Iterator[str]) -> Iterator[tuple[str, ...]]:
    """Yield the first `_MAX_FILES` names in tuples of `_PIECE_NAMES`."""
    first_names = islice(names, _MAX_FILES)
    while piece := tuple(islice(first_names, _PIECE_NAMES)):
        yield piece


def _matching_paths(
    query: str, pieces: Iterable[Sequence[str]]
) -> Iterator[tuple[bool, int, float, int, str]]:
    """Yield a sort key for each path that contains the characters of `query` in their order.

    The smallest key is the best match. A key consists of: whether such files are rarely named,
    the rank, the negative similarity, the length of the path, and the path.
    """
    from rapidfuzz import fuzz

    lower_query = query.lower()
    letters = [re.escape(letter) for letter in lower_query if not letter.isspace()]
    # each letter after any characters that differ from it
    pattern = re.compile("".join(f"[^{x}\n]*{x}" for x in letters), re.IGNORECASE)
    for piece in pieces:
        for path in piece:
            if not pattern.match(path):
                continue
            lower_path = path.lower()
            _, _, name = lower_path.rpartition("/")
            rank = _rank(lower_query, name, lower_path)
            similarity = fuzz.ratio(lower_query, name)
            if rank == _SCATTERED_RANK:
                # the letters may be in names of directories
                similarity += fuzz.partial_ratio(lower_query, lower_path)
            is_rarely_named = _RARELY_NAMED.search(lower_path) is not None
            yield is_rarely_named, rank, -similarity, len(path), path


_SCATTERED_RANK = 3


def _rank(query: str, name: str, path: str) -> int:
    """Return how well a path matches `query`, as a number; 0 is best.

    `name` is the last part of `path`. `_SCATTERED_RANK` means that only the letters of `query`
    occur, with others between them.
    """
    if name.startswith(query):
        return 0
    if query in name:
        return 1
    return 2 if query in path else _SCATTERED_RANK


def _similar_names(query: str, pieces: Iterable[Sequence[str]]) -> Sequence[str]:
    """Return paths with names similar to `query`, which may contain a typing error."""
    from rapidfuzz import fuzz, process

    _, _, name = query.lower().rpartition("/")
    if not name:
        return ()
    matches = list[tuple[float, str]]()  # negative similarity, path
    for piece in pieces:
        names = [path.lower().rpartition("/")[2] for path in piece]
        for _, score, index in process.extract(
            name, names, scorer=fuzz.ratio, limit=5, score_cutoff=_MIN_SIMILARITY
        ):
            matches.append((-score, piece[index]))
    return [path for _, path in nsmallest(_MAX_OFFERS, matches)]
