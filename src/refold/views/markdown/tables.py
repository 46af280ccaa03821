"""Lay out a finished table: in columns, or row by row if the screen is too narrow.

Cells are wrapped, never cut. `spans` has parsed them before.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from refold.views.markdown.blocks import split_row
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import cells, wrap

Side: TypeAlias = Literal["left", "right", "center"]
Cell: TypeAlias = Callable[[str, Style], list[Piece]]
_MIN_COLUMN_CELLS = 8  # cells: a narrower column of long text is unreadable
_MAX_COLUMNS = 40  # columns side by side; more are unreadable


def table_lines(
    lines: Sequence[str], width: int, cell: Cell, *, headed: bool, symbols: bool
) -> list[Line]:
    """Lay out a table. `cell` parses a cell; with `width` 0 any width is allowed.

    With `symbols`, characters beyond ASCII are used.
    """
    head = split_row(lines[0]) if headed else []
    body = [split_row(line) for line in lines[2 if headed else 0 :]]
    count = max([len(head), *map(len, body)])
    grid = [[cell(text, "strong") for text in head]] if headed else []
    grid += [[cell(text, "plain") for text in texts] for texts in body]
    grid = [[*fields, *([] for _ in range(count - len(fields)))] for fields in grid]
    delimiters = split_row(lines[1]) if headed else []
    sides: list[Side] = [
        _alignment(delimiter)
        for delimiter in [*delimiters, *([""] * (count - len(delimiters)))]
    ]
    bar = "│" if symbols else "|"
    widths = _widths(grid, width, count)
    if widths is None:
        return list(_records(grid, width, headed=headed, rule="─" if symbols else "-"))
    return list(_columns(grid, widths, sides, f" {bar} ", headed=headed))


def _columns(
    grid: Sequence[Sequence[list[Piece]]],
    widths: Sequence[int],
    sides: Sequence[Side],
    bar: str,
    *,
    headed: bool,
) -> Iterator[Line]:
    for number, fields in enumerate(grid):
        cut = zip(fields, widths, strict=True)
        parts = [wrap(text, width, addresses=False) for text, width in cut]
        for index in range(max(map(len, parts))):
            line: list[Piece] = []
            for column, (rows, width) in enumerate(zip(parts, widths, strict=True)):
                last = column == len(widths) - 1
                shown = rows[index] if index < len(rows) else ()
                line += _align(shown, width, sides[column], last=last)
                if not last:
                    line.append(("dim", bar))
            if line and line[-1] == ("dim", bar):
                line[-1] = ("dim", bar.rstrip())
            yield tuple(line)
        if headed and not number:
            dash, cross = ("─", "─┼─") if bar == " │ " else ("-", "-+-")
            yield (("dim", cross.join(dash * width for width in widths)),)


def _align(row: Line, column_width: int, side: Side, *, last: bool) -> Iterator[Piece]:
    if last and not row:
        return
    left = column_width - sum(cells(text) for _, text in row)
    before = {"left": 0, "right": left, "center": left // 2}[side]
    if before > 0:
        yield ("plain", " " * before)
    yield from row
    if left > before and not last:
        yield ("plain", " " * (left - before))


def _records(
    grid: Sequence[Sequence[list[Piece]]], width: int, *, headed: bool, rule: str
) -> Iterator[Line]:
    """Each row as a record: one cell per line, after the header of its column."""
    head: Sequence[list[Piece]] = grid[0] if headed else ()
    for number, fields in enumerate(grid[1 if headed else 0 :]):
        if number:
            yield (("dim", rule * min(width, 3)),)
        for column, text in enumerate(fields):
            named: list[Piece] = head[column] if column < len(head) else []
            colon: list[Piece] = [("dim", ": ")] if named and text else []
            if named or text:
                yield from wrap([*named, *colon, *text], width)
    if headed and len(grid) == 1:
        for named in head:
            yield from wrap(named, width)


def _widths(
    grid: Sequence[Sequence[list[Piece]]], width: int, count: int
) -> list[int] | None:
    """The width of each column, or None if they do not fit side by side."""
    wanted = [max(_width(fields[column]) for fields in grid) for column in range(count)]
    between = 3 * (count - 1)
    if not width or sum(wanted) + between <= width:
        return [max(column_width, 1) for column_width in wanted]
    if count > _MAX_COLUMNS or width - between < sum(
        min(max(w, 1), _MIN_COLUMN_CELLS) for w in wanted
    ):
        return None
    # The narrow ones get what they want, the wide ones share the rest.
    left, widths = width - between, [0] * count
    for rank, column in enumerate(sorted(range(count), key=wanted.__getitem__)):
        widths[column] = max(min(wanted[column], left // (count - rank)), 1)
        left -= widths[column]
    return widths


def _width(text: Sequence[Piece]) -> int:
    """The width of a cell's widest line."""
    whole = "".join(part for _, part in text)
    return max((cells(line.expandtabs(4)) for line in whole.split("\n")), default=0)


def _alignment(delimiter: str) -> Side:
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return "left"
