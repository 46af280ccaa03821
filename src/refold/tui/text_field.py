"""A text field as a value, and the rows that it is drawn on. Pure.

Long pastes are folded: each is one private character in `text`, and `whole` puts the pasted
text back. `editing` applies keys to a field.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.views.escape import visible
from refold.views.pastes import paste_label
from refold.views.wrap import letters

FIRST_PASTE = 0xF0000  # the first private character that stands for a paste
MAX_PASTES = 0xFFFE  # pastes of one session
_RUNS_PATTERN = re.compile(
    f"[\n\t{chr(FIRST_PASTE)}-{chr(FIRST_PASTE + MAX_PASTES - 1)}]"
    f"|[^\n\t{chr(FIRST_PASTE)}-{chr(FIRST_PASTE + MAX_PASTES - 1)}]+"
)
Mode: TypeAlias = Literal["insert", "normal", "replace"]  # of vi
Span: TypeAlias = tuple[int, int]


class TextField(Struct, frozen=True):
    """A text field. `at` is the cursor, as an index into `text`.

    With `vi` it has vi keys, and `pending` are the keys of an unfinished command. `edit` is
    the state of the line editor that belongs to the text, for example undo; `kept` is the
    state that outlives it, for example the texts that were cut.
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
        """The text with its pastes put back."""
        return "".join(_paste_or_letter(self, c) if is_paste(c) else c for c in self.text)


class Edit(Struct, frozen=True):
    """A field after a key.

    `beyond` is how many lines above (negative) or below the text the key would go.
    """

    field: TextField
    beyond: int = 0


class FieldLayout(Struct, frozen=True):
    """The rows of a field, and where its cursor stands: row and cell, from 0.

    `selected` is the part of each row that is selected.
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
    """Return an empty field that still has the texts that were cut."""
    return TextField(pastes=field.pastes, vi=field.vi, kept=field.kept)


def lay_out(field: TextField, width: int) -> FieldLayout:
    """Return the field on rows of `width` cells; the cursor is always on one of them."""
    rows, index, cursor = _Rows(max(width, 2)), 0, (0, 0)
    for text, span in _clusters(field):
        has_cursor = index <= field.at < index + span
        if span > 1 and text.isascii() and not has_cursor:  # a run
            rows.add_narrow(text)
            index += span
            continue
        parts = [("", 0)] if text == "\n" else list(letters(text))
        rows.make_room(parts[0][1])
        if has_cursor:
            cursor = rows.place
        selected = any(start <= index < end for start, end in field.selected)
        index += span
        if text == "\n":
            rows.begin_row()
            continue
        for letter, cells in parts:  # several only for the label of a paste
            rows.add_letter(letter, cells, selected=selected)
    if field.at >= index:
        rows.make_room(1)
        cursor = rows.place
    return FieldLayout(tuple(rows.rows), *cursor, tuple(rows.selected))


class _Rows:
    """Rows that are being filled with text, and the selected part of each."""

    def __init__(self, width: int) -> None:
        self.rows, self.selected = [""], [(0, 0)]
        self._width, self._used = width, 0

    @property
    def place(self) -> tuple[int, int]:
        return len(self.rows) - 1, self._used

    def begin_row(self) -> None:
        self.rows.append("")
        self.selected.append((0, 0))
        self._used = 0

    def make_room(self, cells: int) -> None:
        if self._used + cells > self._width:
            self.begin_row()

    def add_narrow(self, text: str) -> None:
        """Add text whose characters take one cell each."""
        while text:
            self.make_room(1)
            cells_left = self._width - self._used
            self.rows[-1] += text[:cells_left]
            self._used += len(text[:cells_left])
            text = text[cells_left:]

    def add_letter(self, letter: str, cells: int, *, selected: bool) -> None:
        self.make_room(cells)
        if selected:
            first, last = self.selected[-1]
            begin = len(self.rows[-1])
            self.selected[-1] = (first if last else begin, begin + len(letter))
        self.rows[-1] += letter
        self._used += cells


def _clusters(field: TextField) -> Iterator[tuple[str, int]]:
    """Yield the graphemes of the text as they are drawn, each with its length in `text`.

    Away from the cursor, text of one cell per character comes in longer pieces.
    """
    for match in _RUNS_PATTERN.finditer(field.text):
        run = match[0]
        far = not match.start() <= field.at <= match.end() and not field.selected
        if far and run.isascii() and run.isprintable():
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
    """Return the paste that this character stands for, or the character itself."""
    number = ord(letter) - FIRST_PASTE
    return field.pastes[number] if number < len(field.pastes) else letter


def _paste_label(paste: str) -> str:
    return visible(paste) if len(paste) == 1 else paste_label(paste, max_lines=0)
