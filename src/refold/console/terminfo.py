"""Reads from the terminfo database how a terminal erases a line and sets colours.

`capabilities` chooses the display, `colours` maps the colours. Padding (delays for slow lines) is left
out.
"""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

_PADDING_PATTERN = re.compile(rb"\$<[0-9.]+[*/]*>")
# What prompt_toolkit writes, the same bytes for every terminal.
_TOOLKIT_SEQUENCES = {"cr": "\r", "el": "\x1b[K", "ed": "\x1b[J"}
_TOOLKIT_MOVES = {"cuu": "A", "cud": "B", "cuf": "C", "cub": "D"}
_MARK_CAPABILITIES = {"1": "bold", "2": "dim", "3": "sitm", "4": "smul", "7": "rev"}


class Terminfo(Struct, frozen=True, kw_only=True):
    """What a terminal can do. Strings are sent unchanged; "" means unsupported.

    `marks` are by SGR code, if there is one; `inks` set the colour of each number.
    """

    back: str = ""  # moves to the start of the line and erases it
    up: str = ""
    marks: Mapping[str, str] = {}
    inks: tuple[str, ...] = ()
    reset: str = ""
    common: bool = False  # it understands what prompt_toolkit writes
    full: bool = False  # a cursor that can be placed anywhere, and hidden

    @property
    def colors(self) -> int:
        return len(self.inks)


def read_terminfo(term: str, out: int = 1) -> Terminfo | None:
    """Return what terminfo has for the terminal `term`, or None without an entry.

    The library keeps the first terminal that a process asks for, and returns it for any
    later name: one terminal per process.
    """
    try:
        import curses
    except ImportError:  # Python was built without it
        return None
    try:
        curses.setupterm(term, out)
    except (curses.error, ValueError):  # there is no such entry, or the name is invalid
        return None

    def ask(name: str, *numbers: int) -> str:
        capability = curses.tigetstr(name)
        return _without_padding(
            curses.tparm(capability, *numbers) if capability and numbers else capability
        )

    return _read(ask, curses.tigetnum, curses.tigetflag)


def _read(
    ask: Callable[..., str], count: Callable[[str], int], lookup: Callable[[str], int]
) -> Terminfo:
    prints = lookup("hc") > 0 or lookup("os") > 0  # prints on paper, or over what is there
    cr, el, reset = ask("cr"), ask("el"), ask("sgr0")
    # Some old terminals use up a cell for each change of colour.
    paints = bool(reset) and count("xmc") <= 0
    colors = min(max(count("colors"), 0), 256) if paints else 0
    inks = [ask("setaf", number) for number in range(colors)]
    return Terminfo(
        back="" if prints or not (cr and el) else cr + el,
        up=ask("cuu1"),
        marks={code: ask(name) for code, name in _MARK_CAPABILITIES.items()}
        if paints
        else {},
        inks=tuple(inks) if all(inks) else (),
        reset=reset if paints else "",
        full=not prints and all(ask(name) for name in ("cup", "civis", "cnorm", "el")),
        common=not prints
        and all(ask(name) == sequence for name, sequence in _TOOLKIT_SEQUENCES.items())
        and all(ask(name, 7) == f"\x1b[7{end}" for name, end in _TOOLKIT_MOVES.items()),
    )


def _without_padding(capability: bytes | None) -> str:
    """Return the text without padding; "" if it is missing or not ASCII."""
    text = _PADDING_PATTERN.sub(b"", capability or b"").decode("ascii", "replace")
    return "" if "\ufffd" in text else text
