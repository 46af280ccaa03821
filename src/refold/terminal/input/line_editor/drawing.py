"""Output, colours and styles for everything that prompt_toolkit draws for us.

It also erases what was drawn, including on a terminal that became narrower meanwhile. The prompt and
the list of sessions decide what is drawn.
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
ESC_ALONE = 0.1  # seconds after which Esc is a key of its own
_ANSI_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "gray")
_STYLE_MARKS = {
    "1": "bold",
    "2": "fg:ansibrightblack",
    "3": "italic",
    "4": "underline",
    "7": "reverse",
}
# Where each kind of light of the 216 colours stands, of 255.
_COLOR_LEVELS = (0, 95, 135, 175, 215, 255)


def drawing_arguments(capabilities: TerminalCapabilities) -> dict[str, Any]:
    """Return the arguments for a prompt_toolkit application: output, colours and styles."""
    return {
        # The cursor position is never asked for: a late reply would be read as typed text.
        "output": Vt100_Output(
            sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False
        ),
        "include_default_pygments_style": False,
        **style_arguments(capabilities),
    }


def style_arguments(capabilities: TerminalCapabilities) -> dict[str, Any]:
    """Return the arguments that depend on the theme: styles in its colours."""
    # Where there is a line editor, styles are written as ECMA-48 codes.
    codes = {style: begin[2:-1] for style, begin in capabilities.style_sequences.items()}
    styles = {
        style: " ".join(map(_to_style, colours.split_codes(code)))
        for style, code in codes.items()
    }
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
    """Return one code as prompt_toolkit writes it."""
    number = colours.foreground_number(part)
    if number is None:
        return _STYLE_MARKS.get(part, "")
    if number < 8:
        return f"fg:ansi{_ANSI_COLORS[number]}"
    if number < 16:
        return (
            "fg:ansiwhite" if number == 15 else f"fg:ansibright{_ANSI_COLORS[number - 8]}"
        )
    return "fg:#{:02x}{:02x}{:02x}".format(*_to_rgb(number))


def _to_rgb(number: int) -> tuple[int, int, int]:
    """Return red, green and blue of one of the 256 colours."""
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    cube = number - 16
    return _COLOR_LEVELS[cube // 36], _COLOR_LEVELS[cube // 6 % 6], _COLOR_LEVELS[cube % 6]


def _size() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(24, 80)
    # Some terminals report 0 for an unknown size.
    return Size(size.lines or 24, size.columns or 80)


# A terminal that becomes narrower while the user types: everything drawn is erased.
# prompt_toolkit moves up as many rows as it drew. A terminal that reflows old lines has
# more of them now, and the uppermost would stay: a second prompt. On a terminal not known
# to reflow (`TerminalCapabilities.reflows`), nothing more is erased: it may be another
# program's output.


def erase_reflowed_rows(app: Application[Any], capabilities: TerminalCapabilities) -> None:
    """Make `app` erase all the rows that its output takes after a reflow."""
    if not capabilities.reflows:
        return
    erase = app.renderer.erase

    def erase_all_rows(leave_alternate_screen: bool = True) -> None:
        app.output.cursor_up(_extra_row_count(app))
        erase(leave_alternate_screen)

    app.renderer.erase = erase_all_rows


def _extra_row_count(app: Application[Any]) -> int:
    """Return how many more rows are above the cursor at this width than were drawn."""
    drawn = app.renderer.last_rendered_screen
    if drawn is None:
        return 0
    cursor = drawn.get_cursor_position(app.layout.current_window)
    above = [
        max(
            (column + cell.width for column, cell in row.items() if cell.char != " "),
            default=0,
        )
        for number, row in drawn.data_buffer.items()
        if number < cursor.y
    ]
    columns = max(app.output.get_size().columns, 1)
    # A full row wraps to the next only with one more character.
    return sum(max(width - 1, 0) // columns for width in (*above, cursor.x))


class DraftEditor:
    """A draft below the output: what is printed pushes it down. Implements `EditorBelow`.

    `status` are the rows above the prompt, which are drawn with it.
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
        width = self._printer.free_columns
        drawn = (
            piece for row in rows if row for piece in (*truncate(row, width), _ROW_END)
        )
        status: Line = tuple(drawn)
        if status != self.status:
            self.status = status
            self._app.invalidate()
