"""What a program has changed of a terminal, and the orders that put it right. Pure.

A program that is ended in the middle leaves its modes behind: the cursor hidden, the
mouse heard, letters drawn as lines.
"""

import re

_MODES = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_ON_FROM_THE_START = frozenset({b"7", b"12", b"25"})  # wrapping, blinking, the cursor
_SCREENS = frozenset({b"47", b"1047", b"1049"})
_LONGEST = 80  # bytes of an order that comes in two pieces
# What was seen of each kind, and what ends it.
_OTHERS = (
    (re.compile(rb"\x1b\[[0-9;:]*m"), b"\x1b[0m"),
    (re.compile(rb"\x1b="), b"\x1b>"),
    (re.compile(rb"\x1b[()][^B]"), b"\x1b(B\x1b)B"),
    (re.compile(rb"\x0e"), b"\x0f"),
    (re.compile(rb"\x1b\[[0-9;]*r"), b"\x1b7\x1b[r\x1b8"),  # it moves the cursor home
    (re.compile(rb"\x1b\[>[0-9;]*u"), b"\x1b[<u"),
    (re.compile(rb"\x1b\[>4;[12]m"), b"\x1b[>4m"),
)


class ModesSeen:
    """`full_screen`: it drew on a screen of its own at some time."""

    def __init__(self) -> None:
        self.full_screen = False
        self._modes = dict[bytes, bool]()
        self._others = set[int]()
        self._before = b""

    def add(self, piece: bytes) -> None:
        text = self._before + piece
        self._before = text[-_LONGEST:]
        for found in _MODES.finditer(text):
            for mode in found[1].split(b";"):
                on = self._modes[mode] = found[2] == b"h"
                self.full_screen = self.full_screen or (on and mode in _SCREENS)
        for number, (order, _) in enumerate(_OTHERS):
            if number not in self._others and order.search(text):
                self._others.add(number)

    def undone(self) -> bytes:
        """The orders after which the terminal is as it was."""
        left = [
            b"\x1b[?" + mode + (b"h" if mode in _ON_FROM_THE_START else b"l")
            for mode, on in self._modes.items()
            if on != (mode in _ON_FROM_THE_START)
        ]
        others = [undone for n, (_, undone) in enumerate(_OTHERS) if n in self._others]
        return b"".join((*others, *left))
