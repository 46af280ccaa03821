"""Styled words of a finished block, broken into rows that fit.

Between words, where a wide letter stands also beside it, and inside a word only where it
is wider than a row. An address that is so wide stays whole on a row of its own: the
terminal breaks it, and it can still be copied. `flow` does this for words under way.
"""

import re
from collections.abc import Iterable

from refold.views.cells import cells, cut, letters
from refold.views.styled import Line, Link, Piece, Style, joined

_PARTS = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_ADDRESS = re.compile(r"\W{0,3}[a-z][a-z+]{1,9}://\S+")
# Chinese and Japanese marks that no row begins with, and that none ends with.
_NOT_FIRST = "、。，．：；！？）］｝」』】》〉〕…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
_NOT_LAST = "（［｛「『【《〈〔"


class _Rows:
    def __init__(self, room: int, *, addresses: bool) -> None:
        self._room, self._addresses = max(room, 2), addresses
        self._row: list[Piece] = []
        self._used = 0
        self._blank: list[Piece] = []
        self._word: list[Piece] = []
        self._last = ""
        self.done: list[Line] = []

    def add(self, style: Style | Link, text: str) -> None:
        for part in _PARTS.findall(text):
            if part == "\n":
                self.end_row()
            elif part[0] in " \t":
                self._settle()
                self._blank.append((style, part.expandtabs(4)))
            elif cells(part) == len(part):
                self._grow(style, part)
            else:
                self._letters(style, part)

    def end_row(self) -> None:
        self._settle()
        self.done.append(tuple(joined(self._row)))
        self._row, self._used, self._blank = [], 0, []

    def _letters(self, style: Style | Link, part: str) -> None:
        wide_before = False
        for letter, wide in letters(part):
            may_break = (wide > 1 or wide_before) and letter[0] not in _NOT_FIRST
            if may_break and self._last not in _NOT_LAST:
                self._settle()
            self._grow(style, letter)
            wide_before = wide > 1

    def _grow(self, style: Style | Link, text: str) -> None:
        self._word.append((style, text))
        self._last = text[-1]

    def _settle(self) -> None:
        """Put the word on this row, or on the next."""
        if not self._word:
            return
        word, self._word = joined(self._word), []
        self._last = ""
        text = "".join(part for _, part in word)
        wide, blank = cells(text), sum(cells(part) for _, part in self._blank)
        if self._used + blank + wide > self._room and self._row:
            self.done.append(tuple(joined(self._row)))
            self._row, self._used, blank = [], 0, 0
            self._blank = []
        if wide > self._room and not (self._addresses and _ADDRESS.match(text)):
            self._break(word)
        else:
            if self._used + blank + wide <= self._room:
                self._row += self._blank
                self._used += blank
            self._row += word
            self._used += wide
        self._blank = []

    def _break(self, word: list[Piece]) -> None:
        """A word wider than any row, which stands at the start of one."""
        *whole, rest = chopped(word, self._room)
        self.done += whole
        self._row, self._used = list(rest), sum(cells(text) for _, text in rest)


def broken(pieces: Iterable[Piece], room: int, *, addresses: bool = True) -> list[Line]:
    """The rows of these words, none wider than `room` but a lone address.

    `addresses` false: those are broken too.
    """
    rows = _Rows(room, addresses=addresses)
    for style, text in pieces:
        rows.add(style, text)
    rows.end_row()
    return rows.done


def chopped(pieces: Iterable[Piece], room: int) -> list[Line]:
    """Code on rows of `room` cells, broken anywhere; nothing is lost or added."""
    rows: list[list[Piece]] = [[]]
    used = 0
    for style, text in pieces:
        if used + cells(text) <= room:
            rows[-1].append((style, text))
            used += cells(text)
            continue
        for letter, wide in letters(text):
            if used + wide > room and used:
                rows.append([])
                used = 0
            rows[-1].append((style, letter))
            used += wide
    return [tuple(joined(row)) for row in rows]


def clipped(row: Line, room: int) -> Line:
    """The start of a row; "…" stands for what is missing."""
    left, kept = room, list[Piece]()
    if sum(cells(text) for _, text in row) <= room:
        return row
    for style, text in row:
        if cells(text) >= left:  # more may come, so its end is where the cut is
            kept.append((style, cut(f"{text} ", left)))
            break
        kept.append((style, text))
        left -= cells(text)
    return tuple(kept)
