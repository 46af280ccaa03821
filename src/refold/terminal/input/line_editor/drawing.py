"""Configures how prompt_toolkit draws: its output, colours and styles.

This module also erases what prompt_toolkit drew, even if the terminal has become narrower
since. The prompt and the list of sessions decide what is drawn.
"""

import os
import sys
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style as Styles

from refold.console import colours
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.views.styled import Line, Piece
from refold.views.wrap import truncate

_ROW_END: Piece = ("plain", "\n")
ESC_ALONE_SECONDS = 0.1  # then Esc is a key, not the start of a sequence
_ANSI_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "gray")
_STYLE_MARKS = {
    "1": "bold",
    "2": "fg:ansibrightblack",
    "3": "italic",
    "4": "underline",
    "7": "reverse",
}
# The levels of each primary colour in the 216 colours, out of 255.
_COLOR_LEVELS = (0, 95, 135, 175, 215, 255)


def drawing_arguments(capabilities: TerminalCapabilities) -> dict[str, Any]:
    """Return the arguments with which a prompt_toolkit application is created.

    They set its output, colours and styles.
    """
    return {
        # The cursor position is never requested, because a late reply would be read as
        # typed text.
        "output": Vt100_Output(
            sys.stdout, _terminal_size, term=os.environ.get("TERM"), enable_cpr=False
        ),
        "include_default_pygments_style": False,
        **style_arguments(capabilities),
    }


def style_arguments(capabilities: TerminalCapabilities) -> dict[str, Any]:
    """Return the arguments that set the colours and styles of the theme."""
    styles = dict[str, str]()
    for style, sequence in capabilities.style_sequences.items():
        # With a line editor, styles are written as ECMA-48 codes, such as "\x1b[1;31m".
        codes = sequence.removeprefix("\x1b[").removesuffix("m")
        styles[style] = " ".join(map(_to_style, colours.split_codes(codes)))
    depth = ColorDepth.DEPTH_4_BIT
    if not capabilities.color or capabilities.mono:
        depth = ColorDepth.DEPTH_1_BIT
    elif any("#" in style for style in styles.values()):
        depth = ColorDepth.DEPTH_8_BIT
    dim = styles.get("dim", "")
    return {
        "color_depth": depth,
        "style": Styles.from_dict({**styles, "auto-suggestion": dim}),
    }


def _to_style(part: str) -> str:
    """Return a style code in the notation of prompt_toolkit, or "" for an unknown code."""
    number = colours.foreground_number(part)
    if number is None:
        return _STYLE_MARKS.get(part, "")
    if number < 8:
        return f"fg:ansi{_ANSI_COLORS[number]}"
    if number == 15:
        return "fg:ansiwhite"  # the name of bright gray
    if number < 16:
        return f"fg:ansibright{_ANSI_COLORS[number - 8]}"
    return "fg:#{:02x}{:02x}{:02x}".format(*_to_rgb(number))


def _to_rgb(number: int) -> tuple[int, int, int]:
    """Return red, green and blue of the colour `number`, from 16 to 255.

    Terminals have a cube of 6 * 6 * 6 colours from 16 on, and shades of grey from 232 on.
    """
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    red_and_green, blue = divmod(number - 16, 6)
    red, green = divmod(red_and_green, 6)
    return _COLOR_LEVELS[red], _COLOR_LEVELS[green], _COLOR_LEVELS[blue]


def _terminal_size() -> Size:
    """Return the size of the terminal; 24 rows of 80 columns if it is unknown."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(24, 80)
    # Some terminals report 0 for an unknown size.
    return Size(size.lines or 24, size.columns or 80)


# If a terminal becomes narrower while the user types, everything drawn is erased.
# prompt_toolkit moves up as many rows as it drew. A terminal that reflows old lines now has
# more rows, and the uppermost would stay as a second prompt. On a terminal not known to
# reflow (`TerminalCapabilities.reflows`), nothing more is erased, because it may be another
# program's output.


def erase_reflowed_rows(app: Application[Any], capabilities: TerminalCapabilities) -> None:
    """Make `app` erase all rows of its output, also if a narrower terminal has wrapped them."""
    if not capabilities.reflows:
        return
    erase = app.renderer.erase

    def erase_all_rows(leave_alternate_screen: bool = True) -> None:
        app.output.cursor_up(_extra_row_count(app))
        erase(leave_alternate_screen)

    app.renderer.erase = erase_all_rows


def _extra_row_count(app: Application[Any]) -> int:
    """Return by how many rows the rows above the cursor have grown since they were drawn."""
    drawn = app.renderer.last_rendered_screen
    if drawn is None:
        return 0
    cursor = drawn.get_cursor_position(app.layout.current_window)
    widths = [cursor.x]  # of each row, without the blanks at its end
    for row_number, row in drawn.data_buffer.items():
        if row_number < cursor.y:
            ends = (column + cell.width for column, cell in row.items() if cell.char != " ")
            widths.append(max(ends, default=0))
    columns = max(app.output.get_size().columns, 1)
    # A full row wraps to the next only with one more character.
    return sum(max(width - 1, 0) // columns for width in widths)


class DraftEditor:
    """A prompt that stays below the output while output is printed. Implements `EditorBelow`.

    `status` are the rows above the prompt, which are drawn together with it.
    """

    def __init__(self, app: Application[Any], printer: Printer) -> None:
        self._app, self._printer = app, printer
        self.status: Line = ()

    def erase(self) -> None:
        if self._app.is_running:
            self._app.renderer.erase()

    def draw(self) -> None:
        if self._app.is_running:
            self._app._redraw()  # pyright: ignore[reportPrivateUsage]  # `invalidate` is late

    def show_status(self, rows: tuple[Line, ...]) -> None:
        """Show these rows above the prompt. Draw the prompt again only if they have changed."""
        width = self._printer.free_columns
        pieces = list[Piece]()
        for row in rows:
            if row:
                pieces += (*truncate(row, width), _ROW_END)
        status: Line = tuple(pieces)
        if status != self.status:
            self.status = status
            self._app.invalidate()
