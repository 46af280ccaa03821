"""Breaks lines of code into rows that fit the screen. `wrap` breaks other text."""

from collections.abc import Iterable, Sequence

from refold.views.styled import Line, Piece, PieceStyle, join_pieces, plain_text
from refold.views.wrap import cells, letters

CONTINUATION_MARK = "↳ "  # before a row that continues a line of code
_MIN_MARKED_CELLS = 8  # narrower rows have no mark


def wrap_code(pieces: Iterable[Piece], width: int) -> list[Line]:
    """Break a line of code into rows, if possible after a blank near the end of the row.

    Rows that continue the line begin with a mark, if they are wide enough: a hanging indent
    would look like another level of Python. The line terminal does not use this function for
    code of a response: the terminal itself breaks it, so that it can be copied as one line.
    """
    pieces = join_pieces(pieces)
    if sum(cells(text) for _, text in pieces) <= width:
        return [tuple(pieces)]
    mark: list[Piece] = []
    if width >= _MIN_MARKED_CELLS:
        mark = [("dim", CONTINUATION_MARK)]
    code: list[tuple[PieceStyle, str, int]] = [
        (style, letter, letter_cells)
        for style, text in pieces
        for letter, letter_cells in letters(text)
    ]
    rows = list[Line]()
    start = 0
    while start < len(code):
        before = mark if rows else []
        end = _row_end(code, start, width - cells(plain_text([tuple(before)])))
        row: list[Piece] = [(style, letter) for style, letter, _ in code[start:end]]
        rows.append(tuple(join_pieces([*before, *row])))
        start = end
    return rows


def _row_end(code: Sequence[tuple[PieceStyle, str, int]], start: int, width: int) -> int:
    """Return the index at which the row that begins at `start` ends, in a line of code.

    The row ends after its last blank, if that is in its second half. Blanks of the indent do
    not count. A row has at least one letter.
    """
    used, text_seen = 0, False
    after_blank = start  # the index after the last blank
    for index in range(start, len(code)):
        _, letter, letter_cells = code[index]
        if used + letter_cells > width and index > start:
            middle = start + (index - start) // 2
            return after_blank if after_blank > middle else index
        used += letter_cells
        text_seen = text_seen or letter != " "
        if letter == " " and text_seen:  # only after the indent
            after_blank = index + 1
    return len(code)
