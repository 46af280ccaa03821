"""Writes to the terminal: lines that stay, and a status that is erased.

Append-only: a printed line is never changed. The status has one row, or several if the cursor can
move up; it is drawn only at the start of a line and erased before anything else is printed. A line
editor may stand below: everything is printed above it, a row at a time. Callers escape the text
first.
"""

import re
import sys
from collections.abc import Generator, Iterable, Mapping
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

_FIRST_COLUMN = re.compile(r"(?:\* | ) *\S+(?: \S+)*  +")  # of a list
_FAR_IN = 16  # cells: text that starts there is a second column


class EditorBelow(Protocol):
    """A line editor below the output. It draws the status, too."""

    def erase(self) -> None: ...
    def draw(self) -> None: ...
    def show_status(self, rows: tuple[Line, ...]) -> None: ...


class Printer:
    def __init__(self, output: TextIO, capabilities: TerminalCapabilities) -> None:
        self.capabilities = capabilities
        self._out = output
        self._at_start, self._after_gap = True, True
        self.written = 0  # how often a status was replaced by lasting text
        self._status = tuple[str, ...]()  # its rows,
        self._drawn = tuple[int, ...]()  # and the cells of each
        self._editor: EditorBelow | None = None
        self._begun = list[Piece]()  # a row that has to be complete before it is printed

    @property
    def free_columns(self) -> int:
        return self.capabilities.text_width()

    def set_theme(self, theme: str, environ: Mapping[str, str]) -> None:
        """Use the colours of this theme from now on, if colours are used at all."""
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
        """Replace the capabilities, for example after a change of colours."""
        self.capabilities = capabilities

    @property
    def is_at_line_start(self) -> bool:
        """Whether the cursor is at the start of a line."""
        return self._at_start

    def print_pieces(self, pieces: Iterable[Piece]) -> None:
        """Print text at the cursor, without starting a line."""
        whole = join_pieces(pieces)
        if self._editor is not None:
            whole, self._begun = _split_last_row([*self._begun, *whole])
            self._at_start = self._at_start and not self._begun
        if text := "".join(text for _, text in whole):
            self._write("".join(self.capabilities.paint(*piece) for piece in whole), text)

    def print_line(self, line: Line) -> None:
        self.start_line()
        width = self.free_columns if self.capabilities.moves else sys.maxsize
        indent = _indent("".join(text for _, text in line), width)
        self.print_pieces((*wrap_line(line, width, indent), ("plain", "\n")))

    def print_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.print_line(line)

    def print_nested_lines(self, lines: Iterable[Line]) -> None:
        """Print indented lines that belong to the one above."""
        sign = self.capabilities.sign("result")
        for index, line in enumerate(lines):
            self.print_line((("dim", "    " if index else f"  {sign} "), *line))

    def print_text(self, text: str, style: Style = "plain") -> None:
        self.print_line(((style, text),))

    def start_line(self) -> None:
        """Move to the start of a line."""
        if self._begun:
            self.print_pieces((("plain", "\n"),))
        elif not self._at_start:
            self._write("\n", "\n")

    @contextmanager
    def print_above(self, editor: EditorBelow) -> Generator[None]:
        """Print above this editor, which is open until the block ends."""
        self.start_line()
        self.clear_status()
        self._editor = editor
        try:
            yield
        finally:
            self._editor = None
            begun, self._begun = self._begun, []
            self.print_pieces(begun)

    def ensure_blank_line(self) -> None:
        """Print an empty line unless the last one is empty."""
        self.start_line()
        if not self._after_gap:
            self._write("\n", "\n")

    def note_typed_line(self) -> None:
        """Note that a line was typed here; the cursor is below it."""
        self._at_start, self._after_gap = True, False

    def note_echoed_ctrl_c(self) -> None:
        """Note Ctrl+C: where keys are always echoed, ^C is on the line now."""
        if self.capabilities.display == "plain":
            self._at_start = self._after_gap = False

    def show_status(self, *rows: Line) -> None:
        """Show rows until something else is printed; nothing if they could not be erased.

        If the cursor cannot move up, or the screen is low, only the last rows are shown.
        """
        if self._editor is not None:
            self._editor.show_status(rows[-self.max_status_rows :])
            return
        if not self.capabilities.moves or not self._at_start:
            return
        drawn = [self._fit(row) for row in rows[-self.max_status_rows :]]
        shown = tuple(painted for painted, _ in drawn)
        if not any(shown):
            self.clear_status()
            return
        if shown == self._status:
            return
        same = 0  # rows at the top that do not change
        for before, after in zip(self._status, shown, strict=False):
            if before != after:
                break
            same += 1
        # The cursor is in the last row drawn: that one is always drawn again.
        same = max(min(same, len(shown) - 1, len(self._status) - 1), 0)
        back = self._erase_sequence(same)
        self._status, self._drawn = shown, tuple(cells_ for _, cells_ in drawn)
        self._send(back + "\n".join(shown[same:]))

    @property
    def max_status_rows(self) -> int:
        """Return how many rows a status may have."""
        height = self.capabilities.height()
        if not self.capabilities.cursor_up_sequence or not height:
            return 1
        return max(height // 2, 1)

    def _fit(self, row: Line) -> tuple[str, int]:
        """Return the row, styled and cut to the screen, and its width in cells."""
        encoding = self._encoding
        # The mark of a cut is longer where its sign must be spelled in ASCII.
        left = self._width - 1 - (0 if is_unicode_encoding(encoding) else MAX_CUT_CELLS)
        painted, drawn = "", 0
        for style, text in row:
            part = replace_unencodable(
                cut(replace_unencodable(with_stable_width(text), encoding), left), encoding
            )
            left -= cells(part)
            drawn += cells(part)
            painted += self.capabilities.paint(style, part)
        return painted, drawn

    @property
    def has_status(self) -> bool:
        return bool(self._status)

    def clear_status(self) -> None:
        if self._editor is not None:
            self._editor.show_status(())
        if self._status:
            back = self._erase_sequence()
            self._status, self._drawn = (), ()
            self._send(back)

    def send_sequence(self, sequence: str) -> None:
        """Send a sequence that shows nothing on terminals that can move the cursor."""
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
        capabilities, drawn = self.capabilities, self._drawn[keep:]
        columns = self._width if capabilities.reflows else 0
        broken = sum(max(width - 1, 0) // columns for width in drawn) if columns else 0
        above = max(len(drawn) - 1, 0) + broken if capabilities.cursor_up_sequence else 0
        return (
            capabilities.erase_line_sequence
            + (capabilities.cursor_up_sequence + capabilities.erase_line_sequence) * above
        )

    def _write(self, text: str, bare: str) -> None:
        self.written += 1
        if self._editor is None:
            self.clear_status()
        else:
            self._editor.erase()
        self._send(text)
        self._after_gap = bare.endswith("\n\n") or (bare == "\n" and self._at_start)
        self._at_start = bare.endswith("\n") and not self._begun
        if self._editor is not None:
            self._editor.draw()

    def _send(self, text: str) -> None:
        try:
            self._out.write(replace_unencodable(text, self._encoding))
            self._out.flush()
        except OSError:  # the terminal is gone; the session need not end for that
            return


def _split_last_row(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces of complete rows, and those of the row that is not complete."""
    for index in range(len(pieces) - 1, -1, -1):
        style, text = pieces[index]
        complete, end, rest = text.rpartition("\n")
        if end:
            begun: list[Piece] = [(style, rest)] if rest else []
            last: Piece = (style, complete + end)
            return [*pieces[:index], last], [*begun, *pieces[index + 1 :]]
    return [], pieces


def _indent(text: str, width: int) -> int:
    """Return the indent of a broken line: its second column, or its own indent."""
    column = _FIRST_COLUMN.match(text)
    if column and cells(column[0]) <= width // 2:
        return cells(column[0])
    mark = 2 if text.startswith("* ") else 0  # of the selected item of a list
    indent = len(text) - len(text[mark:].lstrip(" "))
    return indent + 2 if 0 < indent < _FAR_IN else indent
