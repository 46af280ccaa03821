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

ESC_ALONE = 0.1  # seconds, after which it is no beginning of another key
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


def drawing(look: TerminalCapabilities) -> dict[str, Any]:
    """What an application is given for it."""
    return {
        # No cursor position is asked for: an answer that comes late would be typed text.
        "output": Vt100_Output(
            sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False
        ),
        "include_default_pygments_style": False,
        **colouring(look),
    }


def colouring(look: TerminalCapabilities) -> dict[str, Any]:
    """What of that a theme changes: the same colours as all else has on this terminal."""
    # Where there is a line editor, a style's order says its codes as ECMA-48 does.
    codes = {style: begin[2:-1] for style, begin in look.paints.items()}
    styles = {
        style: " ".join(map(_to_style, colours.parts(code)))
        for style, code in codes.items()
    }
    depth = ColorDepth.DEPTH_4_BIT
    if not look.color or look.mono:
        depth = ColorDepth.DEPTH_1_BIT
    elif any("#" in style for style in styles.values()):
        depth = ColorDepth.DEPTH_8_BIT
    dim = styles.get("dim", "")
    return {
        "color_depth": depth,
        "style": Styles.from_dict({**styles, "auto-suggestion": dim}),
    }


def _to_style(part: str) -> str:
    """One code, in the words of prompt_toolkit."""
    number = colours.ink(part)
    if number is None:
        return _STYLE_MARKS.get(part, "")
    if number < 8:
        return f"fg:ansi{_ANSI_COLORS[number]}"
    if number < 16:
        return (
            "fg:ansiwhite" if number == 15 else f"fg:ansibright{_ANSI_COLORS[number - 8]}"
        )
    return "fg:#{:02x}{:02x}{:02x}".format(*_lights(number))


def _lights(number: int) -> tuple[int, int, int]:
    """Red, green and blue of one of the 256 colours."""
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
    # Some terminals say 0 for what they do not know.
    return Size(size.lines or 24, size.columns or 80)


# A terminal that becomes narrower while something is typed: all that was drawn is taken back.
#
# prompt_toolkit goes up as many rows as it has drawn. A terminal that fits old lines into
# its new width has made more of them, and would keep the uppermost: a second prompt. Where
# it is not known to do that (`TerminalCapabilities.refits`), nothing is taken back that another program may have drawn.


def taking_all_back(app: Application[Any], look: TerminalCapabilities) -> None:
    """From now on, whenever `app` takes back what it has drawn."""
    if not look.refits:
        return
    erase = app.renderer.erase

    def all_of_it(leave_alternate_screen: bool = True) -> None:
        app.output.cursor_up(_more_rows(app))
        erase(leave_alternate_screen)

    app.renderer.erase = all_of_it


def _more_rows(app: Application[Any]) -> int:
    """How many rows of this width stand above the cursor, besides those that were drawn."""
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
    # A row that is full goes on in the next only with one letter more.
    return sum(max(wide - 1, 0) // columns for wide in (*above, cursor.x))
