"""A text field as a value, and the rows on which it is drawn. Pure.

A long paste is one private character in `text`; `whole` has the pasted text in its place.
`editing` applies keys to a field.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.views.escape import visible
from refold.views.pastes import paste_label
from refold.views.wrap import letters

FIRST_PASTE = 0xF0000  # the first private character that represents a paste
MAX_PASTES = 0xFFFE  # pastes in one session
_RUNS_PATTERN = re.compile(
    f"[\n\t{chr(FIRST_PASTE)}-{chr(FIRST_PASTE + MAX_PASTES - 1)}]"
    f"|[^\n\t{chr(FIRST_PASTE)}-{chr(FIRST_PASTE + MAX_PASTES - 1)}]+"
)
Mode: TypeAlias = Literal["insert", "normal", "replace"]  # the modes of vi
Span: TypeAlias = tuple[int, int]


class TextField(Struct, frozen=True):
    """A text field. `at` is the position of the cursor in `text`.

    With `vi`, it has vi keys; `pending` are the keys of an unfinished command. `edit` is the
    state of the line editor that belongs to this text, such as undo. `kept` is state that stays
    when the text is replaced, such as the texts that were cut.
    """

    text: str = ""
    at: int = 0
    pastes: tuple[str, ...] = ()
    vi: bool = False
    mode: Mode = "insert"
    pending: str = ""
    selected: tuple[Span, ...] = ()
    edit: object = None
    kept: object = None

    @property
    def whole(self) -> str:
        """The text with the pasted texts in it."""
        return "".join(
            _paste_or_letter(self, letter) if is_paste(letter) else letter
            for letter in self.text
        )


class Edit(Struct, frozen=True):
    """A field after a key.

    `beyond` is the number of lines by which the key would leave the text: negative above its
    first line, positive below its last.
    """

    field: TextField
    beyond: int = 0


class FieldLayout(Struct, frozen=True):
    """The rows of a field, and the row and cell of the cursor, counted from 0.

    `selected` has the start and end of the selected part of each row.
    """

    rows: tuple[str, ...]
    row: int
    cell: int
    selected: tuple[Span, ...] = ()


def is_paste(letter: str) -> bool:
    return FIRST_PASTE <= ord(letter) < FIRST_PASTE + MAX_PASTES


def field_of(text: str) -> TextField:
    return TextField(text, len(text))


def clear(field: TextField) -> TextField:
    """Return the field without text. Texts that were cut can still be inserted."""
    return TextField(pastes=field.pastes, vi=field.vi, kept=field.kept)


def lay_out(field: TextField, width: int) -> FieldLayout:
    """Return the field on rows of `width` cells. One of the rows always has the cursor."""
    rows = _Rows(max(width, 2))
    index = 0  # the position of the cluster in the text
    cursor_row, cursor_cell = 0, 0
    for text, length in _clusters(field):
        has_cursor = index <= field.at < index + length
        is_plain_text = length > 1 and text.isascii()
        if is_plain_text and not has_cursor:
            rows.add_narrow(text)
            index += length
            continue
        # a line end takes no cell
        parts = [("", 0)] if text == "\n" else list(letters(text))
        _, first_cells = parts[0]
        rows.make_room(first_cells)
        if has_cursor:
            cursor_row, cursor_cell = rows.place
        selected = any(start <= index < end for start, end in field.selected)
        index += length
        if text == "\n":
            rows.begin_row()
            continue
        for letter, cells in parts:  # only the label of a paste has several parts
            rows.add_letter(letter, cells, selected=selected)
    if field.at >= index:  # the cursor is behind the text
        rows.make_room(1)
        cursor_row, cursor_cell = rows.place
    return FieldLayout(tuple(rows.rows), cursor_row, cursor_cell, tuple(rows.selected))


class _Rows:
    """Rows that are being filled with text, and the selected part of each row."""

    def __init__(self, width: int) -> None:
        self.rows, self.selected = [""], [(0, 0)]
        self._width, self._used = width, 0

    @property
    def place(self) -> tuple[int, int]:
        """The row and the cell at which the next letter is added."""
        return len(self.rows) - 1, self._used

    def begin_row(self) -> None:
        self.rows.append("")
        self.selected.append((0, 0))
        self._used = 0

    def make_room(self, cells: int) -> None:
        if self._used + cells > self._width:
            self.begin_row()

    def add_narrow(self, text: str) -> None:
        """Add text in which each character takes one cell."""
        while text:
            self.make_room(1)
            cells_left = self._width - self._used
            self.rows[-1] += text[:cells_left]
            self._used += len(text[:cells_left])
            text = text[cells_left:]

    def add_letter(self, letter: str, cells: int, *, selected: bool) -> None:
        """Add a letter of `cells` cells. If it is selected, extend the selection of its row."""
        self.make_room(cells)
        if selected:
            first, last = self.selected[-1]
            begin = len(self.rows[-1])
            is_first = last == 0  # nothing of this row is selected yet
            self.selected[-1] = (begin if is_first else first, begin + len(letter))
        self.rows[-1] += letter
        self._used += cells


def _clusters(field: TextField) -> Iterator[tuple[str, int]]:
    """Yield each grapheme of the text as it is drawn, and its length in `text`.

    Text of one cell per character, away from the cursor, is yielded in longer pieces.
    """
    for match in _RUNS_PATTERN.finditer(field.text):
        run = match[0]
        is_away_from_cursor = (
            not match.start() <= field.at <= match.end() and not field.selected
        )
        if is_away_from_cursor and run.isascii() and run.isprintable():
            yield run, len(run)
        elif run == "\n":
            yield run, 1
        elif run == "\t":
            yield " ", 1
        elif is_paste(run[0]):
            yield _paste_label(_paste_or_letter(field, run)), 1
        else:
            for cluster, _ in letters(run):
                yield visible(cluster), len(cluster)


def _paste_or_letter(field: TextField, letter: str) -> str:
    """Return the pasted text that this character stands for, or the character itself."""
    number = ord(letter) - FIRST_PASTE
    return field.pastes[number] if number < len(field.pastes) else letter


def _paste_label(paste: str) -> str:
    return visible(paste) if len(paste) == 1 else paste_label(paste, max_lines=0)
