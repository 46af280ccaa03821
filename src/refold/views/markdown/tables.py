"""Lays out a finished table: in columns, or row by row if the screen is too narrow.

Cells are wrapped and never cut. `spans` parses their text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from refold.views.markdown.line_syntax import split_row
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import cells, wrap

Alignment: TypeAlias = Literal["left", "right", "center"]
ParseCell: TypeAlias = Callable[[str, Style], list[Piece]]
_MIN_COLUMN_CELLS = 8  # a narrower column of long text is unreadable
_MAX_COLUMNS = 40  # side by side; more are unreadable
_RECORD_RULE_CELLS = 3  # the length of the rule between two records
_BORDER_CELLS = 3  # between two columns: a bar with a blank on each side


def table_lines(
    lines: Sequence[str], width: int, cell: ParseCell, *, headed: bool, symbols: bool
) -> list[Line]:
    """Return a table as lines of at most `width` cells; 0 means any width.

    `cell` parses the text of one cell. With `headed`, the first two of `lines` are the header
    and the delimiter row. With `symbols`, rules are drawn with characters beyond ASCII.
    """
    head = split_row(lines[0]) if headed else []
    body = [split_row(line) for line in lines[2 if headed else 0 :]]
    column_count = max([len(head), *map(len, body)])
    grid = [[cell(text, "strong") for text in head]] if headed else []
    grid += [[cell(text, "plain") for text in texts] for texts in body]
    for fields in grid:  # a short row gets empty cells
        fields += [[] for _ in range(column_count - len(fields))]
    widths = _column_widths(grid, width, column_count)
    if widths is None:
        return list(_records(grid, width, headed=headed, rule="─" if symbols else "-"))
    delimiters = split_row(lines[1]) if headed else []
    delimiters += [""] * (column_count - len(delimiters))
    alignments: list[Alignment] = [_alignment(delimiter) for delimiter in delimiters]
    return list(_columns(grid, widths, alignments, headed=headed, symbols=symbols))


def _columns(
    grid: Sequence[Sequence[list[Piece]]],
    widths: Sequence[int],
    alignments: Sequence[Alignment],
    *,
    headed: bool,
    symbols: bool,
) -> Iterator[Line]:
    """Yield the table's rows in columns of these widths, with bars between them.

    A row of the table has as many lines as its longest cell. A rule is below the header.
    """
    bar, dash, cross = (" │ ", "─", "─┼─") if symbols else (" | ", "-", "-+-")
    last_column = len(widths) - 1
    for row_index, fields in enumerate(grid):
        wrapped_fields = [
            wrap(text, width, addresses=False)
            for text, width in zip(fields, widths, strict=True)
        ]
        for line_index in range(max(map(len, wrapped_fields))):
            line: list[Piece] = []
            for column, cell_lines in enumerate(wrapped_fields):
                is_last = column == last_column
                shown = cell_lines[line_index] if line_index < len(cell_lines) else ()
                line += _align(shown, widths[column], alignments[column], last=is_last)
                if not is_last:
                    line.append(("dim", bar))
            if line and line[-1] == ("dim", bar):  # the last cell is empty
                line[-1] = ("dim", bar.rstrip())
            yield tuple(line)
        if headed and row_index == 0:
            yield (("dim", cross.join(dash * width for width in widths)),)


def _align(row: Line, column_width: int, side: Alignment, *, last: bool) -> Iterator[Piece]:
    """Yield the pieces of a cell's row with the blanks that align it.

    In the last column, no blanks follow the text.
    """
    if last and not row:
        return
    blank_count = column_width - sum(cells(text) for _, text in row)
    blanks_before = {"left": 0, "right": blank_count, "center": blank_count // 2}[side]
    blanks_after = blank_count - blanks_before
    if blanks_before > 0:
        yield ("plain", " " * blanks_before)
    yield from row
    if blanks_after > 0 and not last:
        yield ("plain", " " * blanks_after)


def _records(
    grid: Sequence[Sequence[list[Piece]]], width: int, *, headed: bool, rule: str
) -> Iterator[Line]:
    """Yield each row of the table as a record: one line per cell, after the header of its
    column.
    """
    head: Sequence[list[Piece]] = grid[0] if headed else ()
    body = grid[1:] if headed else grid
    for row_index, fields in enumerate(body):
        if row_index:  # a short rule between two records
            yield (("dim", rule * min(width, _RECORD_RULE_CELLS)),)
        for column, text in enumerate(fields):
            name: list[Piece] = head[column] if column < len(head) else []
            if not name and not text:
                continue
            colon: list[Piece] = [("dim", ": ")] if name and text else []
            yield from wrap([*name, *colon, *text], width)
    if not body:
        for name in head:
            yield from wrap(name, width)


def _column_widths(
    grid: Sequence[Sequence[list[Piece]]], width: int, column_count: int
) -> list[int] | None:
    """Return the width of each column; None if the columns do not fit side by side.

    A `width` of 0 is unlimited.
    """
    full_widths = [
        max(_cell_width(fields[column]) for fields in grid)
        for column in range(column_count)
    ]
    borders_width = _BORDER_CELLS * (column_count - 1)
    if not width or sum(full_widths) + borders_width <= width:
        return [max(column_width, 1) for column_width in full_widths]
    remaining_width = width - borders_width
    min_width = sum(
        min(max(column_width, 1), _MIN_COLUMN_CELLS) for column_width in full_widths
    )
    if column_count > _MAX_COLUMNS or remaining_width < min_width:
        return None
    # Narrow columns get their full width, wide ones share the rest.
    widths = [0] * column_count
    narrowest_first = sorted(range(column_count), key=full_widths.__getitem__)
    for done_count, column in enumerate(narrowest_first):
        equal_share = remaining_width // (column_count - done_count)
        widths[column] = max(min(full_widths[column], equal_share), 1)
        remaining_width -= widths[column]
    return widths


def _cell_width(text: Sequence[Piece]) -> int:
    """Return the width of a cell's widest line."""
    whole = "".join(part for _, part in text)
    return max((cells(line.expandtabs(4)) for line in whole.split("\n")), default=0)


def _alignment(delimiter: str) -> Alignment:
    """Return the alignment of a column by its part of the delimiter row, such as "--:"."""
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return "left"
