"""From the bytes that a terminal sends to messages: keys, letters, pastes, the mouse.

prompt_toolkit's parser knows the sequences. A lone Esc is told from the beginning of one by
time: whoever reads calls `flush` when nothing more has come for a moment.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Mapping

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from refold.tui.messages import Key, Message, Mouse, Paste, Typed

_MOUSE = re.compile(r"\x1b\[<(\d+);(\d+);(\d+)([Mm])")
_NAMES: Mapping[str, str] = {
    "c-m": "enter", "c-i": "tab", "s-tab": "shift+tab", "c-h": "backspace", "escape": "esc",
    "c-_": "ctrl+_", "c-at": "ctrl+space", "<bracketed-paste>": "", "s-escape": "esc",
}  # fmt: skip
_MODIFIERS: Mapping[str, str] = {"c": "ctrl", "s": "shift", "m": "alt"}


class Keyboard:
    """Feed it bytes; it gives the messages that are whole. `at` is when they came."""

    def __init__(self) -> None:
        self._found: list[Message] = []
        self._at = 0.0
        self._after_esc = False
        self._parser = Vt100Parser(self._key)
        self._decoder = getincrementaldecoder("utf-8")(errors="ignore")

    def feed(self, data: bytes, at: float) -> list[Message]:
        self._at = at
        self._parser.feed(self._decoder.decode(data))
        return self._taken()

    def flush(self, at: float) -> list[Message]:
        """Nothing more has come: an Esc was the key Esc."""
        self._at = at
        self._parser.flush()
        if self._after_esc:
            self._after_esc = False
            self._found.append(Key("esc", at))
        return self._taken()

    def _taken(self) -> list[Message]:
        found, self._found = self._found, []
        return found

    def _key(self, press: KeyPress) -> None:
        name = press.key.value if isinstance(press.key, Keys) else press.key
        if name == "escape":
            if self._after_esc:
                self._found.append(Key("esc", self._at))
            self._after_esc = True
            return
        alt, self._after_esc = self._after_esc, False
        match name:
            case "<vt100-mouse-event>":
                self._mouse(press.data)
            case "<bracketed-paste>":
                self._found.append(Paste(press.data, self._at))
            case "<cursor-position-response>" | "<ignore>":
                return
            case _ if len(name) == 1 and not alt:
                self._letter(name)
            case _:
                named = name if len(name) == 1 else _named(name)
                self._found.append(Key(f"alt+{named}" if alt else named, self._at))

    def _letter(self, letter: str) -> None:
        """Letters that come at once are typed at once."""
        last = self._found[-1] if self._found else None
        if isinstance(last, Typed):
            self._found[-1] = Typed(last.text + letter, self._at)
        else:
            self._found.append(Typed(letter, self._at))

    def _mouse(self, data: str) -> None:
        if (found := _MOUSE.fullmatch(data)) is None:
            return
        button, column, row = int(found[1]), int(found[2]) - 1, int(found[3]) - 1
        if button == 64:
            self._found.append(Mouse("wheel_up", column, row))
        elif button == 65:
            self._found.append(Mouse("wheel_down", column, row))
        elif button == 0 and found[4] == "M":
            self._found.append(Mouse("press", column, row))


def _named(name: str) -> str:
    """prompt_toolkit's `c-s-up` as `ctrl+shift+up`."""
    if name in _NAMES:
        return _NAMES[name]
    *modifiers, key = name.split("-")
    return "+".join([*(_MODIFIERS.get(each, each) for each in modifiers), key])
