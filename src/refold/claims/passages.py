"""Text with line numbers, and the lines on which a quote is found word for word.

All white space counts as one space; nothing else is normalized. A quote begins and ends at
word boundaries. A quote is never used as a pattern.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from unicodedata import normalize

from refold.values.text import clean

MIN_QUOTE_WEIGHT = 8  # letters and digits; a shorter quote may match by chance
_MOST_WORK = 5_000_000  # characters compared in a search for one quote
_GAP_MARK = "\0"  # stands for missing lines; no quote crosses it
_WIDE_START = "\u2e80"  # from here on a letter is a syllable or a word


class LineRange(NamedTuple):
    """The first and last line of a range."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"line {self.first}"
        return f"lines {self.first}-{self.last}"


class Passage:
    """A searchable text; build it with `passage` or `passage_of_rows`."""

    def __init__(self, text: str, starts: Sequence[int], numbers: Sequence[int]) -> None:
        self._text, self._starts, self._numbers = text, starts, numbers

    def __bool__(self) -> bool:
        return bool(self._text)

    def places(
        self, quote: str, within: LineRange | None = None, limit: int = 3
    ) -> list[LineRange]:
        """The first `limit` places of `quote`, normalized by `normalize_quote`, that begin
        `within` these lines.
        """
        ranges, position, work = list[LineRange](), self._start(within), 0
        end = self._end_of_quotes(within) + len(quote)
        while len(ranges) < limit and work < _MOST_WORK:
            work += len(quote) + 1_000
            position = (
                self._text.find(quote, position, end)
                if quote and _GAP_MARK not in quote
                else -1
            )
            if position < 0:
                break
            if self._whole_words(position, position + len(quote)):
                ranges.append(
                    LineRange(self._line(position), self._line(position + len(quote) - 1))
                )
            position += 1
        return ranges

    def holds(self, quote: str) -> bool:
        return bool(self.places(quote, limit=1))

    def is_a_line(self, quote: str) -> bool:
        """Whether a line has exactly this text."""
        for place in self.places(quote, limit=20):
            index = bisect_right(self._numbers, place.first) - 1
            last = index + 1 == len(self._starts)
            end = len(self._text) if last else self._starts[index + 1] - 1
            if self._text[self._starts[index] : end].rstrip(f" {_GAP_MARK}") == quote:
                return True
        return False

    def _start(self, within: LineRange | None) -> int:
        if within is None:
            return 0
        index = bisect_right(self._numbers, within.first - 1)
        return self._starts[index] if index < len(self._starts) else len(self._text)

    def _end_of_quotes(self, within: LineRange | None) -> int:
        """The end of the range in which a quote may begin."""
        if within is None:
            return len(self._text)
        index = bisect_right(self._numbers, within.last)
        return self._starts[index] - 1 if index < len(self._starts) else len(self._text)

    def _line(self, position: int) -> int:
        return self._numbers[bisect_right(self._starts, position) - 1]

    def _whole_words(self, start: int, end: int) -> bool:
        text = self._text
        before = text[start - 1 : start] if start else ""
        cut_before = _is_word_letter(before) and _is_word_letter(text[start])
        return not (
            cut_before
            or (_is_word_letter(text[end - 1]) and _is_word_letter(text[end : end + 1]))
        )


class _Later(Passage):
    def __init__(self, text: Callable[[], str]) -> None:
        self._make = text

    def __getattr__(self, name: str) -> object:
        """Build the passage when a field of it is first used."""
        if name not in ("_text", "_starts", "_numbers"):
            raise AttributeError(name)
        vars(self).update(vars(passage(self._make())))
        return vars(self)[name]


def passage_of_rows(rows: Iterable[tuple[int, str]]) -> Passage:
    """The passage of numbered lines, in order, with a gap for missing lines."""
    pieces, starts, numbers = list[str](), list[int](), list[int]()
    position, before = 0, None
    for number, line in rows:
        if before is not None and number != before + 1:
            pieces.append(_GAP_MARK)
            position += 2
        before = number
        if words := normalize_quote(line):
            pieces.append(words)
            starts.append(position)
            numbers.append(number)
            position += len(words) + 1
    return Passage(" ".join(pieces), starts, numbers)


def passage(text: str) -> Passage:
    """The passage of a whole text, with LF line ends only."""
    return passage_of_rows(enumerate(text.split("\n"), 1))


def lazy_passage(text: Callable[[], str]) -> Passage:
    """Like `passage`, but built when it is first used: few passages are searched."""
    return _Later(text)


def normalize_quote(quote: str) -> str:
    """The text with single spaces and normalized characters."""
    return " ".join(normalize("NFC", clean(quote)).split())


def weight(quote: str) -> int:
    """The number of letters and digits in a quote. Letters of scripts like Chinese count twice."""
    return sum(1 + (letter >= _WIDE_START) for letter in quote if letter.isalnum())


def _is_word_letter(letter: str) -> bool:
    # Scripts without spaces between words have no visible word boundaries.
    return (letter.isalnum() and letter < _WIDE_START) or letter == "_"
