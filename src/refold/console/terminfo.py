"""Reads from the terminfo database how a terminal moves the cursor, erases and sets colours.

Padding, which delays output on slow lines, is removed from the sequences. `capabilities`
chooses the display, and `colours` maps the colours.
"""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

_MAX_COLORS = 256  # more are not used
# a delay in milliseconds, as in $<5/>
_PADDING_PATTERN = re.compile(rb"\$<[0-9.]+[*/]*>")
# The sequences of prompt_toolkit, which are the same for every terminal.
_TOOLKIT_SEQUENCES = {"cr": "\r", "el": "\x1b[K", "ed": "\x1b[J"}
_TOOLKIT_MOVES = {"cuu": "A", "cud": "B", "cuf": "C", "cub": "D"}
_MARK_CAPABILITIES = {"1": "bold", "2": "dim", "3": "sitm", "4": "smul", "7": "rev"}


class Terminfo(Struct, frozen=True, kw_only=True):
    """The control sequences of a terminal. A sequence that the terminal lacks is "".

    `marks` are the sequences for styles, by SGR code. `inks` are the sequences that set the
    foreground colour, by number.
    """

    back: str = ""  # moves to the start of the line and erases it
    up: str = ""
    marks: Mapping[str, str] = {}
    inks: tuple[str, ...] = ()
    reset: str = ""
    common: bool = False  # it understands the sequences of prompt_toolkit
    full: bool = False  # its cursor can be placed anywhere, and hidden

    @property
    def colors(self) -> int:
        return len(self.inks)


def read_terminfo(term: str, out: int = 1) -> Terminfo | None:
    """Return the terminfo entry of the terminal `term`, or None if it has no entry.

    Only one terminal per process is possible: the library keeps the first entry that the
    process requests, and returns it for any later name.
    """
    try:
        import curses
    except ImportError:  # Python was built without curses
        return None
    try:
        curses.setupterm(term, out)
    except (curses.error, ValueError):  # there is no such entry, or the name is invalid
        return None

    def ask(name: str, *numbers: int) -> str:
        """Return the sequence of a capability, or "" if the terminal does not have it."""
        sequence = curses.tigetstr(name)
        if sequence and numbers:
            sequence = curses.tparm(sequence, *numbers)
        return _without_padding(sequence)

    return _read(ask, curses.tigetnum, curses.tigetflag)


def _read(
    ask: Callable[..., str], count: Callable[[str], int], lookup: Callable[[str], int]
) -> Terminfo:
    """Return the capabilities of the terminal, as the three functions report them.

    Each function takes the name of a capability. `ask` returns the control sequence, or "" if
    the terminal lacks it. `count` returns a number, and `lookup` a flag as a number. Both
    return 0 or less for a missing capability.
    """
    # the terminal prints on paper, or does not erase what it writes over
    overprints = lookup("hc") > 0 or lookup("os") > 0
    line_start, erase_to_line_end = ask("cr"), ask("el")
    can_erase_line = bool(line_start and erase_to_line_end) and not overprints
    reset = ask("sgr0")
    # Some old terminals use up a cell for each change of colour.
    has_styles = bool(reset) and count("xmc") <= 0
    marks = dict[str, str]()
    if has_styles:
        marks = {code: ask(name) for code, name in _MARK_CAPABILITIES.items()}
    colors = min(max(count("colors"), 0), _MAX_COLORS) if has_styles else 0
    inks = [ask("setaf", number) for number in range(colors)]
    is_full = not overprints and all(ask(name) for name in ("cup", "civis", "cnorm", "el"))
    is_common = (
        not overprints
        and all(ask(name) == sequence for name, sequence in _TOOLKIT_SEQUENCES.items())
        # moves are compared for 7 cells, because a sequence contains their number
        and all(ask(name, 7) == f"\x1b[7{end}" for name, end in _TOOLKIT_MOVES.items())
    )
    return Terminfo(
        back=line_start + erase_to_line_end if can_erase_line else "",
        up=ask("cuu1"),
        marks=marks,
        inks=tuple(inks) if all(inks) else (),
        reset=reset if has_styles else "",
        full=is_full,
        common=is_common,
    )


def _without_padding(capability: bytes | None) -> str:
    """Return the sequence `capability` without padding; "" if it is None or not ASCII."""
    text = _PADDING_PATTERN.sub(b"", capability or b"").decode("ascii", "replace")
    return "" if "\ufffd" in text else text
