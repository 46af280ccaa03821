"""Finds a quote word for word in a text with line numbers.

Any white space counts as one space; nothing else is normalized. A quote begins and ends at word
boundaries. A quote is never used as a pattern.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from unicodedata import normalize

from refold.values.text import clean

MIN_QUOTE_WEIGHT = 8  # letters and digits; a shorter quote may match by chance
_MAX_COMPARED_CHARS = 5_000_000  # characters compared in a search for one quote
_CHARS_PER_SEARCH = 1_000  # that are counted for each search, besides the quote itself
_MAX_TRIED_PLACES = 20  # places of a quote that are compared with a whole line
_GAP_MARK = "\0"  # represents missing lines; no quote can cross it
_WIDE_START = "\u2e80"  # a letter from here on is a syllable or a word


class LineRange(NamedTuple):
    """The first and last line of a range."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"line {self.first}"
        return f"lines {self.first}-{self.last}"


class Passage:
    """A text in which quotes can be found. Create one with `passage` or `passage_of_rows`.

    `starts` has the offset of each line in the text, and `numbers` the number of the line.
    """

    def __init__(self, text: str, starts: Sequence[int], numbers: Sequence[int]) -> None:
        self._text = text
        self._starts = starts
        self._numbers = numbers

    def __bool__(self) -> bool:
        return bool(self._text)

    def places(
        self, quote: str, within: LineRange | None = None, limit: int = 3
    ) -> list[LineRange]:
        """Return the first `limit` places of `quote` that begin within the lines `within`.

        None means all lines. `normalize_quote` must have normalized `quote`.
        """
        if not quote or _GAP_MARK in quote:
            return []
        ranges = list[LineRange]()
        position = self._start(within)
        end = self._end_of_quotes(within) + len(quote)
        compared_chars = 0  # an estimate: a quote may occur very often, at no word boundary
        while len(ranges) < limit and compared_chars < _MAX_COMPARED_CHARS:
            compared_chars += len(quote) + _CHARS_PER_SEARCH
            position = self._text.find(quote, position, end)
            if position < 0:
                break
            quote_end = position + len(quote)
            if self._is_at_word_boundaries(position, quote_end):
                ranges.append(LineRange(self._line(position), self._line(quote_end - 1)))
            position += 1
        return ranges

    def holds(self, quote: str) -> bool:
        """Whether the text contains the quote, from one word boundary to another."""
        return bool(self.places(quote, limit=1))

    def is_a_line(self, quote: str) -> bool:
        """Whether some line is exactly `quote`.

        Only the first places at which `quote` occurs are tried.
        """
        for place in self.places(quote, limit=_MAX_TRIED_PLACES):
            index = bisect_right(self._numbers, place.first) - 1
            is_last = index + 1 == len(self._starts)
            end = len(self._text) if is_last else self._starts[index + 1] - 1
            line = self._text[self._starts[index] : end]
            if line.rstrip(f" {_GAP_MARK}") == quote:  # a gap may follow the line
                return True
        return False

    def _start(self, within: LineRange | None) -> int:
        """Return the offset of the first line in the range; None means the whole text."""
        if within is None:
            return 0
        index = bisect_right(self._numbers, within.first - 1)
        return self._starts[index] if index < len(self._starts) else len(self._text)

    def _end_of_quotes(self, within: LineRange | None) -> int:
        """Return the offset before which a quote must begin, so that it begins in the range."""
        if within is None:
            return len(self._text)
        index = bisect_right(self._numbers, within.last)
        return self._starts[index] - 1 if index < len(self._starts) else len(self._text)

    def _line(self, position: int) -> int:
        return self._numbers[bisect_right(self._starts, position) - 1]

    def _is_at_word_boundaries(self, start: int, end: int) -> bool:
        """Whether no word is cut at the offsets `start` and `end`."""
        text = self._text
        before = text[start - 1 : start] if start else ""
        cuts_first = _is_word_letter(before) and _is_word_letter(text[start])
        cuts_last = _is_word_letter(text[end - 1]) and _is_word_letter(text[end : end + 1])
        return not (cuts_first or cuts_last)


class _LazyPassage(Passage):
    def __init__(self, get_text: Callable[[], str]) -> None:
        self._get_text = get_text

    def __getattr__(self, name: str) -> object:
        """Create the passage when one of its fields is first used."""
        if name not in ("_text", "_starts", "_numbers"):
            raise AttributeError(name)
        made = passage(self._get_text())
        vars(self).update(vars(made))
        return vars(self)[name]


def passage_of_rows(rows: Iterable[tuple[int, str]]) -> Passage:
    """Return a passage of lines with their numbers, in order. No quote matches across missing
    lines.
    """
    pieces, starts, numbers = list[str](), list[int](), list[int]()
    position = 0  # the offset of the next piece
    last_number: int | None = None
    for number, line in rows:
        if last_number is not None and number != last_number + 1:
            pieces.append(_GAP_MARK)
            position += len(_GAP_MARK) + 1  # a space follows each piece
        last_number = number
        if words := normalize_quote(line):
            pieces.append(words)
            starts.append(position)
            numbers.append(number)
            position += len(words) + 1
    return Passage(" ".join(pieces), starts, numbers)


def passage(text: str) -> Passage:
    """Return a passage for a whole text, whose lines end with LF."""
    return passage_of_rows(enumerate(text.split("\n"), 1))


def lazy_passage(text: Callable[[], str]) -> Passage:
    """Return a passage that calls `text` when it is first used.

    Few passages are searched, so few texts are needed.
    """
    return _LazyPassage(text)


def normalize_quote(quote: str) -> str:
    """Return a quote with single spaces and normalized characters."""
    return " ".join(normalize("NFC", clean(quote)).split())


def weight(quote: str) -> int:
    """Return the number of letters and digits in a quote.

    A letter of scripts like Chinese counts twice.
    """
    return sum(2 if letter >= _WIDE_START else 1 for letter in quote if letter.isalnum())


def _is_word_letter(letter: str) -> bool:
    # Scripts without spaces between words have no visible word boundaries.
    return (letter.isalnum() and letter < _WIDE_START) or letter == "_"
