"""Text made to fit: wrapped, and what is long cut with a word on how much is left out."""

from collections.abc import Iterator, Sequence

from refold.views.cells import cells, cut, untabbed, wrapped
from refold.views.escape import visible
from refold.views.flow import fitted
from refold.views.styled import Line, Style, bare, line

FOLDED = 20  # lines of one result
_ROWS = 3  # of one very long line


def text_lines(text: str, room: int, style: Style = "plain") -> list[Line]:
    """Text of a tool as lines that fit: visible, wrapped, its long lines cut."""
    shown = untabbed(visible(text.rstrip("\n")))
    return [line(row, style) for part in shown.split("\n") for row in _rows(part, room)]


def told_lines(text: str, room: int, style: Style = "plain") -> list[Line]:
    """As `text_lines`, for sentences: they are broken between words."""
    shown, most = untabbed(visible(text.rstrip("\n"))), room * (_ROWS - 1)
    return [
        row
        for part in shown.split("\n")
        for row in (in_words if cells(part) <= most else text_lines)(part, room, style)
    ]


def in_words(text: str, room: int, style: Style = "plain") -> list[Line]:
    """A sentence of ours, broken between words; a word too wide for that, inside it."""
    rows = bare([fitted(line(text), room)]).split("\n")
    return [line(part, style) for row in rows for part in wrapped(row, room)]


def folded(lines: Sequence[Line], most: int = FOLDED, hint: str = "") -> list[Line]:
    """The start and the end of `lines`, `most` in all; the end is the longer part."""
    left = len(lines) - most + 1
    if left <= 1:
        return list(lines)
    head = most // 3
    gap = line(f"… {left} more lines{hint} …", "dim")
    return [*lines[:head], gap, *lines[head + left :]]


def _rows(text: str, room: int) -> Iterator[str]:
    rows = list(wrapped(text, room)) if len(text) < room * (_ROWS + 2) else None
    if rows is not None and len(rows) <= _ROWS:
        yield from rows
        return
    yield from list(wrapped(text[: room * _ROWS], room))[: _ROWS - 1]
    start = sum(len(row) for row in list(wrapped(text[: room * _ROWS], room))[: _ROWS - 1])
    yield cut(text[start : start + room * 2], room)
