"""Lays out a finished table: in columns, or row by row if the screen is too narrow.

Cells are wrapped and never cut. `spans` parses their text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from refold.views.markdown.blocks import split_row
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import cells, wrap

Alignment: TypeAlias = Literal["left", "right", "center"]
ParseCell: TypeAlias = Callable[[str, Style], list[Piece]]
_MIN_COLUMN_CELLS = 8  # a narrower column of long text is unreadable
_MAX_COLUMNS = 40  # side by side; more are unreadable


def table_lines(
    lines: Sequence[str], width: int, cell: ParseCell, *, headed: bool, symbols: bool
) -> list[Line]:
    """Return a table as lines of at most `width` cells; 0 means any width.

    `cell` parses the text of one cell. With `headed`, the first two of `lines` are the header
    and the delimiter row. With `symbols`, rules are drawn with characters beyond ASCII.
    """
    head = split_row(lines[0]) if headed else []
    body = [split_row(line) for line in lines[2 if headed else 0 :]]
    count = max([len(head), *map(len, body)])
    grid = [[cell(text, "strong") for text in head]] if headed else []
    grid += [[cell(text, "plain") for text in texts] for texts in body]
    for fields in grid:  # a short row gets empty cells
        fields += [[] for _ in range(count - len(fields))]
    delimiters = split_row(lines[1]) if headed else []
    delimiters += [""] * (count - len(delimiters))
    alignments: list[Alignment] = [_alignment(delimiter) for delimiter in delimiters]
    bar = "│" if symbols else "|"
    widths = _column_widths(grid, width, count)
    if widths is None:
        return list(_records(grid, width, headed=headed, rule="─" if symbols else "-"))
    return list(_columns(grid, widths, alignments, f" {bar} ", headed=headed))


def _columns(
    grid: Sequence[Sequence[list[Piece]]],
    widths: Sequence[int],
    alignments: Sequence[Alignment],
    bar: str,
    *,
    headed: bool,
) -> Iterator[Line]:
    """Yield the table's rows in columns of these widths, with `bar` between them."""
    for number, fields in enumerate(grid):
        columns = zip(fields, widths, strict=True)
        parts = [wrap(text, width, addresses=False) for text, width in columns]
        for index in range(max(map(len, parts))):
            line: list[Piece] = []
            for column, (rows, width) in enumerate(zip(parts, widths, strict=True)):
                last = column == len(widths) - 1
                shown = rows[index] if index < len(rows) else ()
                line += _align(shown, width, alignments[column], last=last)
                if not last:
                    line.append(("dim", bar))
            if line and line[-1] == ("dim", bar):
                line[-1] = ("dim", bar.rstrip())
            yield tuple(line)
        if headed and not number:
            dash, cross = ("─", "─┼─") if bar == " │ " else ("-", "-+-")
            yield (("dim", cross.join(dash * width for width in widths)),)


def _align(row: Line, column_width: int, side: Alignment, *, last: bool) -> Iterator[Piece]:
    """Yield the pieces of a cell's row with the blanks that align it. A last column gets none
    after it.
    """
    if last and not row:
        return
    spare = column_width - sum(cells(text) for _, text in row)
    before = {"left": 0, "right": spare, "center": spare // 2}[side]
    if before > 0:
        yield ("plain", " " * before)
    yield from row
    if spare > before and not last:
        yield ("plain", " " * (spare - before))


def _records(
    grid: Sequence[Sequence[list[Piece]]], width: int, *, headed: bool, rule: str
) -> Iterator[Line]:
    """Yield each row of the table as a record: one line per cell, after the header of its
    column.
    """
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


def _column_widths(
    grid: Sequence[Sequence[list[Piece]]], width: int, count: int
) -> list[int] | None:
    """Return the width of each column; None if the columns do not fit side by side."""
    full_widths = [
        max(_cell_width(fields[column]) for fields in grid) for column in range(count)
    ]
    between = 3 * (count - 1)
    if not width or sum(full_widths) + between <= width:
        return [max(column_width, 1) for column_width in full_widths]
    least = sum(min(max(cells_, 1), _MIN_COLUMN_CELLS) for cells_ in full_widths)
    if count > _MAX_COLUMNS or width - between < least:
        return None
    # Narrow columns get their full width, wide ones share the rest.
    left, widths = width - between, [0] * count
    for rank, column in enumerate(sorted(range(count), key=full_widths.__getitem__)):
        widths[column] = max(min(full_widths[column], left // (count - rank)), 1)
        left -= widths[column]
    return widths


def _cell_width(text: Sequence[Piece]) -> int:
    """Return the width of a cell's widest line."""
    whole = "".join(part for _, part in text)
    return max((cells(line.expandtabs(4)) for line in whole.split("\n")), default=0)


def _alignment(delimiter: str) -> Alignment:
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return "left"
