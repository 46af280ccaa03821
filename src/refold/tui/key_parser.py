"""Parses the bytes that a terminal sends into keys, text, pastes and mouse events. Pure.

Three encodings of keys are read: the old one, where Ctrl+I is Tab and Esc begins other
keys; that of xterm's modifyOtherKeys; and the kitty protocol, where each key is one
sequence. `screen_modes` asks terminals for the last two. A key has the same name in each.

A lone Esc is distinguished from the beginning of a key by time: the reader calls `flush`
when nothing more has arrived for a moment.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Mapping

from refold.tui.messages import Key, Message, Mouse, Paste, Typed

_LETTERS_PATTERN = re.compile(r"[^\x00-\x1f\x7f]+")
_CSI_PATTERN = re.compile(r"\x1b\[([0-?]*)([ -/]*)([@-~])")
_CSI_BEGUN = re.compile(r"\x1b\[[0-?]*[ -/]*")
_RXVT_PATTERN = re.compile(r"\x1b\[(\d+)\$")  # a key with Shift, as rxvt sends it
_REPLY_PATTERN = re.compile(r"\x1b(?:\]\d|P[\d>!|$]|_G)")  # to a query of another program
_REPLY_END = re.compile(r"\x07|\x1b\\")
_MAX_REPLY_CHARS = 4_096
_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"

_FINAL_KEYS: Mapping[str, str] = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end",
    "P": "f1", "Q": "f2", "R": "f3", "S": "f4", "Z": "shift+tab",
    "a": "shift+up", "b": "shift+down", "c": "shift+right", "d": "shift+left",
}  # fmt: skip
_SS3_KEYS: Mapping[str, str] = {
    **{final: name for final, name in _FINAL_KEYS.items() if final.isupper()},
    "M": "enter", "a": "ctrl+up", "b": "ctrl+down", "c": "ctrl+right", "d": "ctrl+left",
}  # fmt: skip
_NUMBERED_KEYS: Mapping[int, str] = {
    1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageup", 6: "pagedown", 7: "home",
    8: "end", 11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7",
    19: "f8", 20: "f9", 21: "f10", 23: "f11", 24: "f12",
}  # fmt: skip
# Keys of the kitty protocol that are not letters; from 57399 on, those of the keypad.
_CODED_KEYS: Mapping[int, str] = {
    8: "backspace", 9: "tab", 13: "enter", 27: "esc", 127: "backspace", 57414: "enter",
    57417: "left", 57418: "right", 57419: "up", 57420: "down", 57421: "pageup",
    57422: "pagedown", 57423: "home", 57424: "end", 57425: "insert", 57426: "delete",
}  # fmt: skip
_KEYPAD, _ON_KEYPAD = 57399, "0123456789./*-+"
_PRIVATE_CODES = range(57344, 63744)  # other keys of that protocol, for example volume keys
# Keys that the old encoding cannot distinguish have one name in all.
_SAME_KEYS: Mapping[str, str] = {
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace", "ctrl+[": "esc",
    "ctrl+ ": "ctrl+space", "ctrl+@": "ctrl+space", "ctrl+2": "ctrl+space",
    "ctrl+/": "ctrl+_", "ctrl+7": "ctrl+_", "ctrl+shift+-": "ctrl+_", "ctrl+shift+2": "ctrl+space",
    "ctrl+backspace": "alt+backspace", "ctrl+delete": "alt+d", "shift+backspace": "backspace",
    "shift+delete": "delete", "shift+esc": "esc",
}  # fmt: skip
_SHIFT, _ALT, _CTRL, _OTHER = 1, 2, 4, 8 | 16 | 32  # the last: super, hyper, meta


class Keyboard:
    """Parses bytes into complete messages. `at` is when they arrived."""

    def __init__(self) -> None:
        self._rest = ""  # an incomplete sequence
        self._decoder = getincrementaldecoder("utf-8")(errors="ignore")

    def feed(self, data: bytes, time: float) -> list[Message]:
        self._rest += self._decoder.decode(data)
        messages = list[Message]()
        place = 0
        while place < len(self._rest):
            if (read := _read_message(self._rest, place, time)) is None:
                break
            message, place = read
            if message is not None:
                messages.append(message)
        self._rest = self._rest[place:]
        return messages

    def flush(self, time: float) -> list[Message]:
        """End the input for now: an Esc is the key Esc, or Alt with the next key."""
        rest, messages = self._rest, list[Message]()
        if rest in ("\x1b", "\x1b\x1b"):
            messages.extend(Key("esc", time) for _ in rest)
        elif len(rest) == 2:
            messages.append(Key(f"alt+{rest[1]}", time))
        elif len(rest) < _MAX_REPLY_CHARS or rest.startswith(_PASTE):
            return []  # the line is slow: the rest is still to come
        self._rest = ""
        return messages


_Read = tuple[Message | None, int]  # and where the next one begins


def _read_message(text: str, place: int, time: float) -> _Read | None:
    """Return the message at this place, or None if it is incomplete."""
    if letters := _LETTERS_PATTERN.match(text, place):
        return Typed(letters[0], time), letters.end()
    if text[place] != "\x1b":
        return Key(_control_name(text[place]), time), place + 1
    after = text[place + 1 : place + 2]
    match after:
        case "":
            return None
        case "[":
            return _read_sequence(text, place, time)
        case "O":
            return _read_ss3(text, place, time)
        case "\x1b":
            return _read_after_esc(text, place, time)
        case "]" | "P" | "_":
            return _read_reply(text, place, time)
        case _:
            return Key(f"alt+{_control_name(after)}", time), place + 2


def _control_name(letter: str) -> str:
    """Return the name of a character, or of the key that sends this control character."""
    if letter >= " " and letter != "\x7f":
        return letter
    if letter == "\x7f":
        return "backspace"
    name = f"ctrl+{chr(ord(letter) + 64).lower()}"
    return _SAME_KEYS.get(name, name)


def _read_after_esc(text: str, place: int, time: float) -> _Read | None:
    """Read Esc twice, or Alt with a sequence."""
    third = text[place + 2 : place + 3]
    if not third:
        return None
    if third in ("[", "O"):
        if (read := _read_message(text, place + 1, time)) is None:
            return None
        if isinstance(read[0], Key):
            return Key(f"alt+{read[0].name}", time), read[1]
    return Key("esc", time), place + 1


def _read_ss3(text: str, place: int, time: float) -> _Read | None:
    final = text[place + 2 : place + 3]
    if not final:
        return None
    if "j" <= final <= "y":  # the keypad, in application mode
        return Typed(chr(ord(final) - 64), time), place + 3
    name = _SS3_KEYS.get(final)
    return (Key(name, time) if name else None), place + 3


def _read_reply(text: str, place: int, time: float) -> _Read | None:
    """Read a reply to another program, which is dropped, or Alt with a letter."""
    if len(text) == place + 2:
        return None
    if not _REPLY_PATTERN.match(text, place):
        return Key(f"alt+{text[place + 1]}", time), place + 2
    end = _REPLY_END.search(text, place + 2)
    return (None, end.end()) if end else None


def _read_sequence(text: str, place: int, time: float) -> _Read | None:
    if text.startswith(_PASTE, place):
        begin = place + len(_PASTE)
        end = text.find(_PASTE_END, begin)
        return (Paste(text[begin:end], time), end + len(_PASTE_END)) if end >= 0 else None
    if text.startswith("\x1b[[", place):  # F1 to F5 of the Linux console
        if len(text) < place + 4:
            return None
        number = ord(text[place + 3]) - 64
        return (Key(f"f{number}", time) if 1 <= number <= 5 else None), place + 4
    if shifted := _RXVT_PATTERN.match(text, place):
        name = _NUMBERED_KEYS.get(_first_number(shifted[1]))
        return (Key(f"shift+{name}", time) if name else None), shifted.end()
    if (match := _CSI_PATTERN.match(text, place)) is None:
        begun = _CSI_BEGUN.match(text, place)
        return None if begun and begun.end() == len(text) else (None, place + 2)
    if match[3] == "M" and not match[1]:  # a click as reported before SGR: three characters
        end = match.end() + 3
        return (None, end) if len(text) >= end else None
    return (None if match[2] else _key_by_params(match[1], match[3], time)), match.end()


def _key_by_params(params: str, final: str, time: float) -> Message | None:
    if params.startswith("<"):
        return _mouse_message(params[1:], final)
    if not re.fullmatch(r"[\d;:]*", params):
        return None
    fields = [
        [_first_number(part) for part in field.split(":")] for field in params.split(";")
    ]
    first = fields[0]
    modifiers, event = (*(fields[1] if len(fields) > 1 else ()), 0, 0)[:2]
    modifiers = max(modifiers - 1, 0) & 63  # Caps Lock and Num Lock are ignored
    if event == 3:  # released
        return None
    match final:
        case "u":
            return _key_by_code(first, modifiers, time)
        case "~" if first[0] == 27 and len(fields) > 2:
            return _key_by_code(fields[2], modifiers, time)
        case "~" | "^":
            name = _NUMBERED_KEYS.get(first[0], "")
            modifiers |= _CTRL if final == "^" else 0
        case "R" if len(fields) > 1 and (first[0] != 1 or not modifiers):
            return None  # a report of the cursor position
        case _:
            name = _FINAL_KEYS.get(final, "")
    return Key(_with_modifiers(modifiers, name), time) if name else None


def _key_by_code(codes: list[int], modifiers: int, time: float) -> Message | None:
    """Return a key by its codes: plain, with Shift, on an English keyboard."""
    code, shifted, english = (*codes, 0, 0)[:3]
    if name := _CODED_KEYS.get(code):
        return Key(_with_modifiers(modifiers, name), time)
    if 0 <= code - _KEYPAD < len(_ON_KEYPAD):
        letter = _ON_KEYPAD[code - _KEYPAD]
    elif not 32 <= code < 0x110000 or code in _PRIVATE_CODES or 0xD800 <= code < 0xE000:
        return None
    else:
        letter = chr(code)
    upper = chr(shifted) if 32 <= shifted < 0xD800 else letter.upper()
    if not modifiers & ~_SHIFT:
        return Typed(upper if modifiers & _SHIFT else letter, time)
    if modifiers & _CTRL and not letter.isascii() and 32 <= english < 127:
        letter = chr(english)
    if modifiers & _SHIFT and (not letter.isalpha() or not modifiers & _CTRL):
        modifiers, letter = (
            (modifiers & ~_SHIFT, upper) if upper != letter else (modifiers, letter)
        )
    return Key(_with_modifiers(modifiers, letter), time)


def _with_modifiers(modifiers: int, name: str) -> str:
    """Return the name of a key with its modifiers."""
    parts = [word for bit, word in ((_CTRL, "ctrl"), (_SHIFT, "shift")) if modifiers & bit]
    whole = "+".join([*parts, name])
    whole = _SAME_KEYS.get(whole, whole)
    if modifiers & _ALT:
        whole = f"alt+{whole}"
    return f"super+{whole}" if modifiers & _OTHER else whole


def _mouse_message(params: str, final: str) -> Message | None:
    numbers = [_first_number(part) for part in params.split(";")]
    if len(numbers) != 3:
        return None
    button, column, row = numbers[0], numbers[1] - 1, numbers[2] - 1
    match button, final:
        case 64, _:
            return Mouse("wheel_up", column, row)
        case 65, _:
            return Mouse("wheel_down", column, row)
        case 0, "M":
            return Mouse("press", column, row)
        case _:
            return None


def _first_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 0
