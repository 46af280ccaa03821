"""Detects what the terminal supports, and defines the control sequences of styles on it.

The default theme uses the 16 colours that the user's terminal defines. `printer` moves the
cursor, and only if the capability `moves` is true.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from typing import Literal, TextIO, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import replace

from refold.console import colours
from refold.console.ascii_fallback import MAX_CUT_CELLS, is_unicode_encoding
from refold.console.terminfo import Terminfo, read_terminfo
from refold.views.styled import ImageRow, Link, PieceStyle, Style

Display: TypeAlias = Literal["plain", "status", "line"]
_DUMB_TERMS = ("dumb", "unknown", "")
_SGR_CODES: Mapping[Style, str] = {
    "dim": "2",
    "strong": "1",
    "emphasis": "3",
    "title": "1;4",
    "heading": "1",
    "subheading": "1;3",
    "link": "4",
    "code": "36",
    "accent": "36",
    "person": "1;34",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "added": "32",
    "gone": "31",
    "hunk": "36;2",
    "added_word": "32;7",
    "gone_word": "31;7",
    "keyword": "35",
    "string": "32",
    "number": "33",
    "comment": "2",
    "name": "34",
    "builtin": "36",
    "selected": "7",
    "border": "2",
}
# in these styles, blanks are visible, too
_FILLED_STYLES = ("added_word", "gone_word", "selected")
_MIN_COLUMNS = 20  # in a narrower terminal, the terminal itself breaks lines
_DEFAULT_COLUMNS = 80
_MAX_COLUMNS_DIGITS = 4  # of the variable COLUMNS; a longer number is a mistake
# Terminals that reflow old lines. xterm cuts them, and the Linux console never resizes.
_REFLOW_VARIABLES = (
    "TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "ALACRITTY_WINDOW_ID", "WT_SESSION",
    "KONSOLE_VERSION", "ITERM_SESSION_ID", "WEZTERM_PANE", "GHOSTTY_RESOURCES_DIR",
)  # fmt: skip
_LINK_PROGRAMS = (
    "iTerm.app",
    "WezTerm",
    "ghostty",
    "vscode",
    "Hyper",
    "Tabby",
    "rio",
    "mintty",
)
_LINK_TERMS = (
    "xterm-kitty",
    "xterm-ghostty",
    "foot",
    "alacritty",
    "contour",
    "wezterm",
    "rio",
)
_MIN_VTE_VERSION = 5000  # version 0.50 of 2017; some earlier versions crashed


def _style_codes(theme: str = "auto", colors: int = 16) -> dict[Style, str]:
    """Return the sequence that begins each style, in this theme and number of colours."""
    themed: dict[Style, str] = {
        style: colours.to_theme(codes, theme, colors) for style, codes in _SGR_CODES.items()
    }
    return {style: f"\x1b[{codes}m" for style, codes in themed.items() if codes}


class TerminalCapabilities(Struct, frozen=True):
    """The capabilities of a terminal.

    `moves` is true if the cursor can move, so that a line can be redrawn. `signs` is true if it
    shows more characters than ASCII. `reflows` is true if the terminal wraps old lines again
    when its width changes. `text_width` returns the width for text in cells. `width` returns
    the width of the terminal, or 0 if it equals `text_width`. `height` returns the number of
    rows, or 0 if it is unknown. `style_sequences` begin a style, and `reset_sequence` ends it.
    `cursor_up_sequence` is "" if the cursor cannot move up.
    """

    color: bool = False
    moves: bool = False
    signs: bool = True
    text_width: Callable[[], int] = lambda: _DEFAULT_COLUMNS
    height: Callable[[], int] = lambda: 0
    display: Display = "plain"
    width: Callable[[], int] = lambda: 0
    style_sequences: Mapping[Style, str] = field(default_factory=_style_codes)
    reset_sequence: str = "\x1b[0m"
    erase_line_sequence: str = "\r\x1b[K"
    cursor_up_sequence: str = ""
    reflows: bool = False
    encoding: str = ""  # "" means as Python detected it
    mono: bool = False  # styles without colours, such as bold
    links: bool = False  # text may contain links

    def paint(self, style: PieceStyle, text: str) -> str:
        """Return the text with the sequences of its style, or as it is without colours.

        A blank text is painted only in a style that has a background.
        """
        if isinstance(style, Link):
            shown = self.paint("link", text)
            return to_link(style.url, shown) if self.links else shown
        if isinstance(style, ImageRow):
            return text
        if not self.color or (not text.strip() and style not in _FILLED_STYLES):
            return text
        begin = self.style_sequences.get(style, "")
        return f"{begin}{text}{self.reset_sequence}" if begin else text

    def sign(self, name: str) -> str:
        """Return the sign `name`, or its replacement if only ASCII is shown."""
        pretty, plain = _SIGN_SETS[name]
        return pretty if self.signs else plain


_SIGN_SETS = {
    "prompt": ("›", ">"),
    "call": ("●", "*"),
    "result": ("└", "|"),
    "thought": ("∴", "~"),
    "wheel": ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"),
}


def detect_capabilities(
    output: TextIO,
    environ: Mapping[str, str],
    color: bool | None = None,
    *,
    display: str = "auto",
    theme: str = "auto",
) -> TerminalCapabilities:
    """Return the capabilities of the terminal `output`. If it is a pipe, text is plain.

    `display` is a display or `auto`. `color` None means to detect whether to use colours.
    """
    encoding = _encoding(output, environ)
    if not output.isatty():
        has_color = (
            colours.uses_colors(environ, has_colors=False) if color is None else color
        )
        return TerminalCapabilities(
            color=has_color, signs=_can_encode(encoding), encoding=encoding
        )
    terminfo = None if is_dumb(environ) else read_terminfo(environ["TERM"])
    chosen_display = choose_display(display, environ, terminfo)
    reserved_cells = 0 if is_unicode_encoding(encoding) else MAX_CUT_CELLS
    plain = TerminalCapabilities(
        signs=False,  # a screen reader would read each of them aloud
        text_width=lambda: max(_width(output, environ) - reserved_cells, _MIN_COLUMNS),
        height=lambda: _height(output),
        width=lambda: _width(output, environ),
        encoding=encoding,
    )
    if chosen_display == "plain":
        return plain
    if color is None:
        color = colours.uses_colors(environ, has_colors=not is_dumb(environ))
    lacks_colors = terminfo is not None and not terminfo.colors
    if lacks_colors and not colours.are_colors_forced(environ):
        theme = "mono"
    moving = replace(
        plain, color=color, moves=True, display=chosen_display, signs=_can_encode(encoding),
        mono=theme == "mono",
    )  # fmt: skip
    reflows = any(environ.get(name) for name in _REFLOW_VARIABLES)
    if chosen_display == "line" or terminfo is None:
        colors = colours.color_count(environ, terminfo)
        return replace(
            moving,
            style_sequences=_style_codes(theme, colors),
            cursor_up_sequence="\x1b[A",
            reflows=reflows,
            links=supports_links(environ),
        )
    # The display `status` has the sequences of terminfo.
    sequences = {
        style: colours.terminfo_sequences(
            colours.to_theme(codes, theme, terminfo.colors), terminfo
        )
        for style, codes in _SGR_CODES.items()
    }
    return replace(
        moving,
        style_sequences={style: begin for style, begin in sequences.items() if begin},
        reset_sequence=terminfo.reset,
        erase_line_sequence=terminfo.back,
        cursor_up_sequence=terminfo.up,
        reflows=reflows,
    )


def _encoding(output: TextIO, environ: Mapping[str, str]) -> str:
    """Return the encoding of `output`; ASCII if the environment chooses the locale C.

    Python would use UTF-8 in the locale C. But if the user has chosen C, the terminal may
    interpret bytes of UTF-8 as control codes.
    """
    encoding = output.encoding or "utf-8"  # a stream in memory can contain any text
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG")
    if locale not in ("C", "POSIX"):
        return encoding
    has_chosen_encoding = environ.get("PYTHONIOENCODING") or environ.get("PYTHONUTF8")
    return encoding if has_chosen_encoding else "ascii"


def _can_encode(encoding: str) -> bool:
    """Return whether the encoding has the signs that refold prints."""
    try:
        "›●└∴⠋".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _width(output: TextIO, environ: Mapping[str, str]) -> int:
    """Return the width that the terminal reports, or else COLUMNS, or else a default."""
    try:
        columns = os.get_terminal_size(output.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    text = environ.get("COLUMNS", "")
    if not columns and text.isdecimal() and len(text) <= _MAX_COLUMNS_DIGITS:
        columns = int(text)
    return columns or _DEFAULT_COLUMNS


def _height(output: TextIO) -> int:
    """Return the number of rows of the terminal, or 0 if it is unknown."""
    try:
        return os.get_terminal_size(output.fileno()).lines
    except (OSError, ValueError, AttributeError):
        return 0


# Links in text use OSC 8 (gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda). A
# terminal without support may print the sequence, and inside tmux or screen the outer
# terminal is unknown, so only known terminals get it. `views.markdown.spans` has made the
# address harmless.
def supports_links(environ: Mapping[str, str]) -> bool:
    """Return whether this terminal is known to show a text as a link."""
    term = environ.get("TERM", "")
    if term.startswith(("tmux", "screen")) or environ.get("TMUX") or environ.get("STY"):
        return False
    version = environ.get("VTE_VERSION", "")
    if version.isdecimal():  # with more digits, it is not a version
        return len(version) < 9 and int(version) >= _MIN_VTE_VERSION
    return bool(
        environ.get("TERM_PROGRAM") in _LINK_PROGRAMS
        or term.startswith(_LINK_TERMS)
        or environ.get("WT_SESSION")
        or environ.get("KITTY_WINDOW_ID")
    )


def to_link(url: str, text: str) -> str:
    """Return `text` as a link to `url`, in a terminal sequence.

    Rows with the same `url` share an id, so that the terminal highlights them together.
    """
    name = f"{zlib.crc32(url.encode()):x}"
    return f"\x1b]8;id={name};{url}\x1b\\{text}\x1b]8;;\x1b\\"


# The choice of the display for a terminal. `plain` is text and newlines. `status` can erase
# one line, with codes from terminfo. `line` is for prompt_toolkit, which writes the same
# codes to every terminal.
def is_dumb(environ: Mapping[str, str]) -> bool:
    """Return whether TERM names a terminal that supports no control sequences."""
    return environ.get("TERM", "") in _DUMB_TERMS


def choose_display(
    display: str, environ: Mapping[str, str], terminfo: Terminfo | None
) -> Display:
    """Return the display for the setting `display`, which may be `auto`.

    A terminal without a terminfo entry is treated like xterm, because it is usually a new
    terminal whose entry is missing on this host.
    """
    if display == "status":
        return "status" if terminfo is not None and terminfo.back else "plain"
    if display in ("plain", "line"):
        return cast(Display, display)
    if is_dumb(environ):
        return "plain"
    if terminfo is None or terminfo.common:
        return "line"
    return "status" if terminfo.back else "plain"
