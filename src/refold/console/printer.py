"""Prints lines to the terminal, and draws an erasable status below them.

A printed line is never changed. The status has one row, or several if the cursor can move up.
The status is drawn only at the start of a line, and erased before anything else is printed.
If a line editor is open, everything is printed above the editor. Callers must escape control
characters in the text.
"""

import re
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

from refold.console.ascii_fallback import (
    MAX_CUT_CELLS,
    is_unicode_encoding,
    replace_unencodable,
)
from refold.console.capabilities import TerminalCapabilities, detect_capabilities
from refold.views.styled import Line, Piece, Style, join_pieces
from refold.views.wrap import cells, cut, with_stable_width, wrap_line

_FIRST_COLUMN = re.compile(r"(?:\* | ) *\S+(?: \S+)*  +")  # the first column of a list
_EXTRA_INDENT_CELLS = 2  # of the rows that continue an indented line
_SECOND_COLUMN_CELLS = 16  # text that starts this far to the right is a second column


class EditorBelow(Protocol):
    """A line editor that is open below the printed lines. The editor also draws the status."""

    def erase(self) -> None:
        """Erase the editor, so that lines can be printed."""
        ...

    def draw(self) -> None:
        """Draw the editor again, below the printed lines."""
        ...

    def show_status(self, rows: tuple[Line, ...]) -> None:
        """Show these rows as the status; () shows none."""
        ...


class Printer:
    """Prints styled text to the terminal, and shows a status below it."""

    def __init__(self, output: TextIO, capabilities: TerminalCapabilities) -> None:
        self.capabilities = capabilities
        self._out = output
        self._at_start = True  # the cursor is at the start of a line
        self._after_gap = True  # the line above is empty
        self.written = 0  # the number of times that lasting text replaced a status
        self._status = tuple[str, ...]()  # the drawn rows of the status
        self._status_widths = tuple[int, ...]()  # the width of each of them
        self._editor: EditorBelow | None = None
        self._unfinished_row = list[Piece]()  # an incomplete row, which is not printed yet

    @property
    def free_columns(self) -> int:
        return self.capabilities.text_width()

    def set_theme(self, theme: str, environ: Mapping[str, str]) -> None:
        """Use the colours of this theme from now on. Do nothing if no colours are used."""
        capabilities = self.capabilities
        self.set_capabilities(
            detect_capabilities(
                self._out,
                environ,
                capabilities.color,
                display=capabilities.display,
                theme=theme,
            )
        )

    def set_capabilities(self, capabilities: TerminalCapabilities) -> None:
        """Replace the capabilities of the terminal, for example after a change of colours."""
        self.capabilities = capabilities

    @property
    def is_at_line_start(self) -> bool:
        """True if the cursor is at the start of a line."""
        return self._at_start

    def print_pieces(self, pieces: Iterable[Piece]) -> None:
        """Print styled pieces of text at the cursor, without starting a new line.

        Above an editor, only complete rows are printed: an incomplete row waits for its end.
        """
        printed = join_pieces(pieces)
        if self._editor is not None:
            waiting = [*self._unfinished_row, *printed]
            printed, self._unfinished_row = _split_last_row(waiting)
            self._at_start = self._at_start and not self._unfinished_row
        bare_text = "".join(text for _, text in printed)
        if bare_text:
            styled_text = "".join(self.capabilities.paint(*piece) for piece in printed)
            self._write(styled_text, bare_text)

    def print_line(self, line: Line) -> None:
        """Print a line on rows of its own. It is wrapped if the terminal's cursor can move."""
        self.start_line()
        width = self.free_columns if self.capabilities.moves else sys.maxsize
        indent = _indent("".join(text for _, text in line), width)
        self.print_pieces((*wrap_line(line, width, indent), ("plain", "\n")))

    def print_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.print_line(line)

    def print_nested_lines(self, lines: Iterable[Line]) -> None:
        """Print lines indented, because they belong to the line above."""
        sign = self.capabilities.sign("result")
        for index, line in enumerate(lines):
            self.print_line((("dim", "    " if index else f"  {sign} "), *line))

    def print_text(self, text: str, style: Style = "plain") -> None:
        self.print_line(((style, text),))

    def start_line(self) -> None:
        """Start a new line unless the cursor is at the start of one."""
        if self._unfinished_row:
            self.print_pieces((("plain", "\n"),))
        elif not self._at_start:
            self._write("\n", "\n")

    @contextmanager
    def print_above(self, editor: EditorBelow) -> Generator[None]:
        """In the block, print above `editor`, which is open below."""
        self.start_line()
        self.clear_status()
        self._editor = editor
        try:
            yield
        finally:
            self._editor = None
            unfinished_row, self._unfinished_row = self._unfinished_row, []
            self.print_pieces(unfinished_row)

    def ensure_blank_line(self) -> None:
        """Print an empty line unless the last printed line is empty."""
        self.start_line()
        if not self._after_gap:
            self._write("\n", "\n")

    def note_typed_line(self) -> None:
        """Record that the user has typed a line, so that the cursor is below it."""
        self._at_start, self._after_gap = True, False

    def note_echoed_ctrl_c(self) -> None:
        """Record that Ctrl+C was pressed, which some terminals show as ^C on the line."""
        if self.capabilities.display == "plain":
            self._at_start = self._after_gap = False

    def show_status(self, *rows: Line) -> None:
        """Show `rows` as the status until something else is printed.

        Show nothing on a terminal that cannot erase rows. If the cursor cannot move up, or the
        screen has too few rows, only the last rows are shown.
        """
        if self._editor is not None:
            self._editor.show_status(rows[-self.max_status_rows :])
            return
        if not self.capabilities.moves or not self._at_start:
            return
        fitted = [self._fit(row) for row in rows[-self.max_status_rows :]]
        new_rows = tuple(painted for painted, _ in fitted)
        if not any(new_rows):
            self.clear_status()
            return
        if new_rows == self._status:
            return
        kept_count = self._count_kept_rows(new_rows)
        erase_sequence = self._erase_sequence(kept_count)
        self._status = new_rows
        self._status_widths = tuple(width for _, width in fitted)
        self._send(erase_sequence + "\n".join(new_rows[kept_count:]))

    def _count_kept_rows(self, new_rows: Sequence[str]) -> int:
        """Return how many rows at the top of the status need not be drawn again."""
        unchanged_count = 0
        for old_row, new_row in zip(self._status, new_rows, strict=False):
            if old_row != new_row:
                break
            unchanged_count += 1
        # The cursor is in the last drawn row, which is therefore always drawn again.
        max_kept = min(len(new_rows), len(self._status)) - 1
        return max(min(unchanged_count, max_kept), 0)

    @property
    def max_status_rows(self) -> int:
        """The maximum number of rows of the status."""
        height = self.capabilities.height()
        if not self.capabilities.cursor_up_sequence or not height:
            return 1
        return max(height // 2, 1)

    def _fit(self, row: Line) -> tuple[str, int]:
        """Return the row, styled and cut to the screen's width, and its width in cells."""
        encoding = self._encoding
        free_cells = self._width - 1
        if not is_unicode_encoding(encoding):  # the mark of a cut is longer in ASCII
            free_cells -= MAX_CUT_CELLS
        painted, used_cells = "", 0
        for style, text in row:
            encodable = replace_unencodable(with_stable_width(text), encoding)
            # A second time, because the mark of a cut may have been added.
            part = replace_unencodable(cut(encodable, free_cells), encoding)
            free_cells -= cells(part)
            used_cells += cells(part)
            painted += self.capabilities.paint(style, part)
        return painted, used_cells

    @property
    def has_status(self) -> bool:
        return bool(self._status)

    def clear_status(self) -> None:
        """Remove the status, which an open editor or the printer itself shows."""
        if self._editor is not None:
            self._editor.show_status(())
        if self._status:
            erase_sequence = self._erase_sequence()
            self._status, self._status_widths = (), ()
            self._send(erase_sequence)

    def send_sequence(self, sequence: str) -> None:
        """Send a control sequence that prints nothing, if the terminal can move the cursor."""
        if self.capabilities.moves:
            self._send(sequence)

    @property
    def _width(self) -> int:
        return self.capabilities.width() or self.free_columns

    @property
    def _encoding(self) -> str:
        return self.capabilities.encoding or self._out.encoding or "utf-8"

    def _erase_sequence(self, keep: int = 0) -> str:
        """Return the sequence that erases the status except its first `keep` rows."""
        capabilities = self.capabilities
        row_widths = self._status_widths[keep:]
        erase_line = capabilities.erase_line_sequence
        if not capabilities.cursor_up_sequence:
            return erase_line
        rows_above = max(len(row_widths) - 1, 0)  # above the row with the cursor
        # a terminal that was made narrower may have broken rows into several
        if capabilities.reflows and self._width:
            rows_above += sum(max(width - 1, 0) // self._width for width in row_widths)
        erase_row_above = capabilities.cursor_up_sequence + erase_line
        return erase_line + erase_row_above * rows_above

    def _write(self, text: str, bare: str) -> None:
        """Print `text` in place of the status. `bare` is the text without its styles.

        Then record whether the cursor is at the start of a line, and whether that line is below an
        empty one.
        """
        self.written += 1
        if self._editor is None:
            self.clear_status()
        else:
            self._editor.erase()
        self._send(text)
        self._after_gap = bare.endswith("\n\n") or (bare == "\n" and self._at_start)
        self._at_start = bare.endswith("\n") and not self._unfinished_row
        if self._editor is not None:
            self._editor.draw()

    def _send(self, text: str) -> None:
        """Write the text, in characters that the terminal's encoding has."""
        try:
            self._out.write(replace_unencodable(text, self._encoding))
            self._out.flush()
        except OSError:  # the terminal was closed; the session can continue without it
            return


def _split_last_row(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return two lists: the pieces of all complete rows, and of the incomplete last row."""
    for index in range(len(pieces) - 1, -1, -1):
        style, text = pieces[index]
        complete, end, rest = text.rpartition("\n")
        if end:
            unfinished_row: list[Piece] = [(style, rest)] if rest else []
            last: Piece = (style, complete + end)
            return [*pieces[:index], last], [*unfinished_row, *pieces[index + 1 :]]
    return [], pieces


def _indent(text: str, width: int) -> int:
    """Return the indent for all rows after the first if the line `text` is wrapped.

    This is the position of the second column of `text`, or else a little more than the indent
    of `text`.
    """
    first_column = _FIRST_COLUMN.match(text)
    if first_column and cells(first_column[0]) <= width // 2:
        return cells(first_column[0])
    after_mark = text.removeprefix("* ")  # the mark of a list's selected item
    indent = len(text) - len(after_mark.lstrip(" "))
    is_second_column = indent >= _SECOND_COLUMN_CELLS
    if indent == 0 or is_second_column:
        return indent
    return indent + _EXTRA_INDENT_CELLS
