"""What this terminal can do, and what styles look like on it.

Sixteen colours that the person's own theme defines, and nothing that moves the
cursor: that is `screen`'s business, and only where `moves` says so.
"""

import os
from collections.abc import Callable, Mapping
from typing import TextIO

from msgspec import Struct

from refold.views.styled import Style

_SGR: Mapping[Style, str] = {
    "dim": "2",
    "strong": "1",
    "heading": "1",
    "code": "36",
    "accent": "36",
    "person": "1;34",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "added": "32",
    "gone": "31",
    "hunk": "36;2",
}


class Look(Struct, frozen=True):
    """`moves`: a line can be drawn and taken back. `signs`: more than ASCII.

    `room` is how wide the screen is now, `height` how high; 0: nobody knows.
    """

    color: bool = False
    moves: bool = False
    signs: bool = True
    room: Callable[[], int] = lambda: 80
    height: Callable[[], int] = lambda: 0

    def paint(self, style: Style, text: str) -> str:
        if not self.color or style == "plain" or not text.strip():
            return text
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m"

    def sign(self, name: str) -> str:
        """A small sign, or what stands for it where only ASCII is shown."""
        pretty, plain = _SIGNS[name]
        return pretty if self.signs else plain


_SIGNS = {
    "prompt": ("›", ">"),
    "call": ("●", "*"),
    "result": ("└", "|"),
    "thought": ("∴", "~"),
    "wheel": ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"),
}


def look(out: TextIO, environ: Mapping[str, str], color: bool | None = None) -> Look:
    capable = out.isatty() and environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    if color is None:
        color = capable and not environ.get("NO_COLOR")
    return Look(
        color, capable, _takes(out, "›●└∴⠋"), lambda: _room(out), lambda: _height(out)
    )


def _takes(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _room(out: TextIO) -> int:
    try:
        return max(os.get_terminal_size(out.fileno()).columns, 20)
    except (OSError, ValueError, AttributeError):
        return 80


def _height(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).lines
    except (OSError, ValueError, AttributeError):
        return 0
