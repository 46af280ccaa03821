"""Pieces of files, and the checks of statements about them. Pure.

A statement is accepted if its quote is in the piece, word for word, and if the piece contains
every name that the statement puts in backticks. Its meaning is not checked. Lines count from
the beginning of the piece, so that an edit above the piece changes nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast
from zlib import crc32

from msgspec import Struct

from refold.claims.passages import (
    MIN_QUOTE_WEIGHT,
    LineRange,
    Passage,
    normalize_quote,
    passage,
    weight,
)
from refold.engine.nested_call import key_of
from refold.values.json_check import value_in

MAX_PIECE_CHARS = 12_000
_MIN_PIECE_CHARS = 6_000
# One in four boundaries ends a piece. The hash of its line decides.
_BOUNDARY_MODULUS = 4
MAX_STATEMENTS = 6  # about one piece
MAX_STATEMENT_CHARS = 300
_MAX_QUOTE_CHARS = 1_000
_LINE_PATTERN = re.compile(r"[^\n]*\n|[^\n]+")
_NAME_PATTERN = re.compile(r"`([^`\n]{1,100})`")
_WORD_PATTERN = re.compile(r"[^\W\d]\w*")
_LINES_PATTERN = re.compile(r"(\d{1,7})(?:\s*[-–]\s*(\d{1,7}))?")

NO_QUOTE = "without a quote, or with a short one"
LONG_QUOTE = "with too long a quote"
QUOTE_MISSING = "with a quote that is not there"
NAME_MISSING = "with a name that is not there"
NOT_STATED = "without a statement"
TOO_MANY = "too many"


class FilePiece(Struct, frozen=True):
    """A piece of a file, from line number `line` on."""

    path: str
    line: int
    text: str

    @property
    def content(self) -> str:
        """The hash of the piece's path and text. Its line number does not count."""
        return key_of("piece", self.path, self.text)


class Statement(Struct, frozen=True):
    """A statement about a piece. Its `quote` is on the lines `first` to `last` of the piece."""

    text: str
    first: int
    last: int
    quote: str


class CheckedAnswer(Struct, frozen=True):
    """The accepted statements, and the number of dropped statements by the reason."""

    statements: tuple[Statement, ...] = ()
    dropped: Mapping[str, int] = {}


def cut(path: str, text: str) -> Sequence[FilePiece]:
    """Cut a file into pieces, if possible where a block of lines begins.

    The hash of a block's first line decides whether a piece ends before the block. So an edit
    changes the piece around it, and seldom other pieces.
    """
    lines = _LINE_PATTERN.findall(text)
    starts = [0]  # the index of the first line of each piece
    size = 0  # the characters of the last piece so far
    last_boundary = 0  # in that piece; 0 if it has none yet
    for index, line in enumerate(lines):
        if index > starts[-1] and _is_boundary(lines, index):
            last_boundary = index
            ends_here = crc32(line.encode(errors="replace")) % _BOUNDARY_MODULUS == 0
            if size >= _MIN_PIECE_CHARS and ends_here:
                starts.append(index)
                size, last_boundary = 0, 0
        is_too_long = size + len(line) > MAX_PIECE_CHARS
        if index > starts[-1] and is_too_long:
            starts.append(last_boundary or index)
            size = sum(len(earlier) for earlier in lines[starts[-1] : index])
            last_boundary = 0
        size += len(line)
    pieces = [
        FilePiece(path, start + 1, "".join(lines[start:end]))
        for start, end in pairwise((*starts, len(lines)))
    ]
    return [piece for piece in pieces if piece.text.strip()]


def _is_boundary(lines: Sequence[str], index: int) -> bool:
    """Whether a block begins here: the line is not indented, and the line before is blank."""
    if index == 0:
        return False
    follows_blank = not lines[index - 1].strip()
    begins_at_margin = lines[index][:1].strip() != ""
    return follows_blank and begins_at_margin


def number_lines(text: str) -> str:
    """Return the text with the number of each line, from 1, and a tab before it."""
    return "\n".join(
        f"{n}\t{line}" for n, line in enumerate(text.rstrip("\n").split("\n"), 1)
    )


def check_answer(answer: str, piece: FilePiece) -> CheckedAnswer:
    """Return the statements in an answer that the piece supports, and why others were dropped.

    Raises `ValueError` if the answer has no list.
    """
    statements, dropped = list[Statement](), Counter[str]()
    text = passage(piece.text)
    words = words_of(piece.path, piece.text)
    for item in items_of(answer, "statements"):
        result = _check_statement(item, text, words)
        if isinstance(result, str):
            dropped[result] += 1
        elif len(statements) == MAX_STATEMENTS:
            dropped[TOO_MANY] += 1
        elif result not in statements:
            statements.append(result)
    return CheckedAnswer(tuple(statements), dropped)


def items_of(answer: str, name: str) -> Iterator[Mapping[str, object]]:
    """Yield the objects in an answer, which is a list or an object with the list `name`.

    Raises `ValueError` if there is no list.
    """
    value = value_in(answer)
    items = value
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).get(name)
    if not isinstance(items, list):
        raise ValueError(f"it has no list {name!r}")
    for item in cast("list[object]", items):
        if isinstance(item, dict):
            yield cast("dict[str, object]", item)


def source_numbers(item: Mapping[str, object], max_number: int) -> Sequence[int]:
    """Return the numbers under `from`, which is a list or one number.

    Return () if one of them is not a number from 1 to `max_number`.
    """
    value = item.get("from")
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    numbers = dict[int, None]()  # a dict keeps the order
    for number in values:
        if not isinstance(number, int) or not 1 <= number <= max_number:
            return ()
        numbers[number] = None
    return tuple(numbers)


def _check_statement(
    item: Mapping[str, object], text: Passage, words: frozenset[str]
) -> Statement | str:
    """Return the statement in `item` with its quote's lines, or the reason to drop it."""
    stated = one_sentence(item.get("text"))
    quote = item.get("quote")
    if not stated:
        return NOT_STATED
    if not isinstance(quote, str) or weight(quote) < MIN_QUOTE_WEIGHT:
        return NO_QUOTE
    if len(quote) > _MAX_QUOTE_CHARS:
        return LONG_QUOTE
    place = find_quote(text, quote, _first_line(item.get("lines")))
    if place is None:
        return QUOTE_MISSING
    if unknown_names(stated, words):
        return NAME_MISSING
    return Statement(stated, place.first, place.last, normalize_quote(quote))


def find_quote(text: Passage, quote: str, near_line: int = 0) -> LineRange | None:
    """Return the lines on which a quote is, or None if the text does not contain it.

    If there are several places, the place nearest to `near_line` counts.
    """
    places = text.places(normalize_quote(quote), limit=50)
    return min(places, key=lambda place: abs(place.first - near_line), default=None)


def one_sentence(value: object) -> str:
    """Return a text on one line, cut at the maximum length, or "" if `value` is not a text."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if len(text) <= MAX_STATEMENT_CHARS:
        return text
    return f"{text[: MAX_STATEMENT_CHARS - 1]}…"


def words_of(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in _WORD_PATTERN.findall(text))


def unknown_names(text: str, words: frozenset[str]) -> Sequence[str]:
    """Return the words within backticks in a text that are not among `words`."""
    names = " ".join(_NAME_PATTERN.findall(text))
    return [word for word in _WORD_PATTERN.findall(names) if word not in words]


def sum_up(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sum of the counts for each key."""
    total = Counter[str]()
    for count in counts:
        total.update(count)
    return dict(total)


def _first_line(value: object) -> int:
    """Return the first number in the field `lines` of a statement, or 0 if there is none."""
    match = _LINES_PATTERN.search(str(value)) if isinstance(value, str | int) else None
    return int(match[1]) if match else 0
