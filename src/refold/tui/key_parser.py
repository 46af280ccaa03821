"""Parses the bytes that a terminal sends into keys, text, pastes and mouse events. Pure.

Three encodings of keys are supported: the old one, in which Ctrl+I is Tab and Esc begins other
keys; xterm's modifyOtherKeys; and the kitty protocol, in which each key is one sequence.
`screen_modes` turns on the last two. A key has the same name in all encodings.

Only time shows whether Esc is a key or begins a sequence: the reader calls `flush` when nothing
more has arrived for a moment.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Mapping

from refold.tui.messages import Key, Message, Mouse, Paste, Typed

_LETTERS_PATTERN = re.compile(r"[^\x00-\x1f\x7f]+")
_CSI_PATTERN = re.compile(r"\x1b\[([0-?]*)([ -/]*)([@-~])")
_PARTIAL_CSI_PATTERN = re.compile(r"\x1b\[[0-?]*[ -/]*")
_RXVT_PATTERN = re.compile(r"\x1b\[(\d+)\$")  # a key with Shift, as rxvt sends it
# the reply to a query of another program
_REPLY_PATTERN = re.compile(r"\x1b(?:\]\d|P[\d>!|$]|_G)")
_REPLY_END = re.compile(r"\x07|\x1b\\")
_FIRST_SURROGATE = 0xD800  # of the codes that are not characters
_KEYPAD_OFFSET = 64  # between a letter that the keypad sends and the character on the key
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
# Keys of the kitty protocol that are not characters; from 57399 on, those of the keypad.
_CODED_KEYS: Mapping[int, str] = {
    8: "backspace", 9: "tab", 13: "enter", 27: "esc", 127: "backspace", 57414: "enter",
    57417: "left", 57418: "right", 57419: "up", 57420: "down", 57421: "pageup",
    57422: "pagedown", 57423: "home", 57424: "end", 57425: "insert", 57426: "delete",
}  # fmt: skip
_FIRST_KEYPAD_CODE, _KEYPAD_CHARS = 57399, "0123456789./*-+"
_PRIVATE_CODES = range(57344, 63744)  # other keys of that protocol, for example volume keys
# Keys that the old encoding cannot distinguish have one name in all encodings.
_SAME_KEYS: Mapping[str, str] = {
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace", "ctrl+[": "esc",
    "ctrl+ ": "ctrl+space", "ctrl+@": "ctrl+space", "ctrl+2": "ctrl+space",
    "ctrl+/": "ctrl+_", "ctrl+7": "ctrl+_", "ctrl+shift+-": "ctrl+_", "ctrl+shift+2": "ctrl+space",
    "ctrl+backspace": "alt+backspace", "ctrl+delete": "alt+d", "shift+backspace": "backspace",
    "shift+delete": "delete", "shift+esc": "esc",
}  # fmt: skip
# the last value means super, hyper or meta
_SHIFT, _ALT, _CTRL, _OTHER = 1, 2, 4, 8 | 16 | 32


class Keyboard:
    """Parses bytes into messages. `time` is the time at which the bytes arrived."""

    def __init__(self) -> None:
        self._unread = ""  # an incomplete sequence
        self._decoder = getincrementaldecoder("utf-8")(errors="ignore")

    def feed(self, data: bytes, time: float) -> list[Message]:
        """Add bytes. Return the messages that are complete."""
        self._unread += self._decoder.decode(data)
        messages = list[Message]()
        place = 0
        while place < len(self._unread):
            read = _read_message(self._unread, place, time)
            if read is None:
                break
            message, place = read
            if message is not None:
                messages.append(message)
        self._unread = self._unread[place:]
        return messages

    def flush(self, time: float) -> list[Message]:
        """Return the messages of the unfinished input, because nothing more has arrived.

        Esc is then the key, or Alt for the character after it. A longer sequence still waits
        for its rest.
        """
        unread = self._unread
        messages = list[Message]()
        if unread in ("\x1b", "\x1b\x1b"):
            messages.extend(Key("esc", time) for _ in unread)
        elif len(unread) == 2:
            messages.append(Key(f"alt+{unread[1]}", time))
        elif len(unread) < _MAX_REPLY_CHARS or unread.startswith(_PASTE):
            return []  # the connection is slow, and the rest will still arrive
        # Longer input that is not complete is dropped: it is not the sequence of a key.
        self._unread = ""
        return messages


_Read = tuple[Message | None, int]  # a message, and the offset of the next one


def _read_message(text: str, place: int, time: float) -> _Read | None:
    """Return the message at this offset, and the offset after it; None if it is incomplete.

    In the functions below, a message of None means that the sequence is ignored.
    """
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
    """Return the name of the key that sends a control character.

    Return any other character unchanged.
    """
    if letter >= " " and letter != "\x7f":
        return letter
    if letter == "\x7f":
        return "backspace"
    # Ctrl takes 64 from the code of a capital letter or sign.
    name = f"ctrl+{chr(ord(letter) + 64).lower()}"
    return _SAME_KEYS.get(name, name)


def _read_after_esc(text: str, place: int, time: float) -> _Read | None:
    """Parse two Esc. If the second begins the sequence of a key, the first adds Alt to this key.

    Otherwise, the first is the key Esc.
    """
    after = text[place + 2 : place + 3]  # the character after both
    if not after:
        return None
    if after in ("[", "O"):
        second_key = _read_message(text, place + 1, time)
        if second_key is None:
            return None
        message, end = second_key
        if isinstance(message, Key):
            return Key(f"alt+{message.name}", time), end
    return Key("esc", time), place + 1


def _read_ss3(text: str, place: int, time: float) -> _Read | None:
    """Parse a key whose sequence begins with Esc O (SS3)."""
    final_place = place + len("\x1bO")
    if final_place == len(text):
        return None
    final, end = text[final_place], final_place + 1
    if "j" <= final <= "y":  # keys of the keypad, in application mode
        return Typed(chr(ord(final) - _KEYPAD_OFFSET), time), end
    name = _SS3_KEYS.get(final)
    return (Key(name, time) if name else None), end


def _read_reply(text: str, place: int, time: float) -> _Read | None:
    """Parse the reply to a query of another program, which is ignored, or Alt with a character.

    Return None if the end of the reply has not arrived yet.
    """
    if len(text) == place + 2:
        return None
    if not _REPLY_PATTERN.match(text, place):
        return Key(f"alt+{text[place + 1]}", time), place + 2
    end = _REPLY_END.search(text, place + 2)
    return (None, end.end()) if end else None


def _read_sequence(text: str, place: int, time: float) -> _Read | None:
    """Parse a sequence that begins with Esc [ (CSI): a paste, a key or a mouse event."""
    if text.startswith(_PASTE, place):
        begin = place + len(_PASTE)
        end = text.find(_PASTE_END, begin)
        return (Paste(text[begin:end], time), end + len(_PASTE_END)) if end >= 0 else None
    if text.startswith("\x1b[[", place):  # F1 to F5 of the Linux console
        end = place + len("\x1b[[A")
        if len(text) < end:
            return None
        number = ord(text[end - 1]) - ord("A") + 1
        return (Key(f"f{number}", time) if 1 <= number <= 5 else None), end
    if shifted := _RXVT_PATTERN.match(text, place):
        name = _NUMBERED_KEYS.get(_number_or_0(shifted[1]))
        return (Key(f"shift+{name}", time) if name else None), shifted.end()
    if (match := _CSI_PATTERN.match(text, place)) is None:
        partial_match = _PARTIAL_CSI_PATTERN.match(text, place)
        if partial_match and partial_match.end() == len(text):
            return None  # the end of the sequence has not arrived yet
        return None, place + len("\x1b[")  # it is not a sequence
    # a click in the format before SGR: three characters
    if match[3] == "M" and not match[1]:
        end = match.end() + 3
        return (None, end) if len(text) >= end else None
    params, intermediates, final = match.groups()
    message = None if intermediates else _key_by_params(params, final, time)
    return message, match.end()


def _key_by_params(params: str, final: str, time: float) -> Message | None:
    """Return the message of a CSI sequence with these parameters and this final letter, or
    None.
    """
    if params.startswith("<"):
        return _mouse_message(params[1:], final)
    if not re.fullmatch(r"[\d;:]*", params):
        return None
    fields = [
        [_number_or_0(part) for part in field.split(":")] for field in params.split(";")
    ]
    first = fields[0]
    second = fields[1] if len(fields) > 1 else []
    modifier_number, event = (*second, 0, 0)[:2]  # missing numbers are 0
    # The number is the sum of the bits plus 1. Caps Lock and Num Lock are ignored.
    modifiers = max(modifier_number - 1, 0) & 63
    if event == 3:  # the key was released
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
            return None  # a report of the cursor position, and not F3
        case _:
            name = _FINAL_KEYS.get(final, "")
    return Key(_with_modifiers(modifiers, name), time) if name else None


def _key_by_code(codes: list[int], modifiers: int, time: float) -> Message | None:
    """Return the message of a key by its codes; None if the key has no name.

    `codes` are up to three codes: of the key alone, with Shift, and on an English keyboard.
    """
    code, shifted, english = (*codes, 0, 0)[:3]  # missing codes are 0
    if name := _CODED_KEYS.get(code):
        return Key(_with_modifiers(modifiers, name), time)
    if 0 <= code - _FIRST_KEYPAD_CODE < len(_KEYPAD_CHARS):
        letter = _KEYPAD_CHARS[code - _FIRST_KEYPAD_CODE]
    elif not _is_character(code) or code in _PRIVATE_CODES:
        return None
    else:
        letter = chr(code)
    with_shift = chr(shifted) if 32 <= shifted < _FIRST_SURROGATE else letter.upper()
    if not modifiers & ~_SHIFT:  # no modifier, or only Shift
        return Typed(with_shift if modifiers & _SHIFT else letter, time)
    # On a keyboard of another alphabet, Ctrl means the English letter on the key.
    if modifiers & _CTRL and not letter.isascii() and 32 <= english < 127:
        letter = chr(english)
    is_ctrl_letter = letter.isalpha() and modifiers & _CTRL
    if modifiers & _SHIFT and with_shift != letter and not is_ctrl_letter:
        # The character itself shows that Shift was pressed.
        modifiers &= ~_SHIFT
        letter = with_shift
    return Key(_with_modifiers(modifiers, letter), time)


def _is_character(code: int) -> bool:
    """Return whether the code is that of a printable character, and not of a surrogate."""
    return 32 <= code < 0x110000 and not _FIRST_SURROGATE <= code < 0xE000


def _with_modifiers(modifiers: int, name: str) -> str:
    """Return the name of a key, preceded by its modifiers."""
    if modifiers & _SHIFT:
        name = f"shift+{name}"
    if modifiers & _CTRL:
        name = f"ctrl+{name}"
    name = _SAME_KEYS.get(name, name)
    if modifiers & _ALT:
        name = f"alt+{name}"
    return f"super+{name}" if modifiers & _OTHER else name


def _mouse_message(params: str, final: str) -> Message | None:
    """Return the message of a mouse report, or None for an action that is not used."""
    numbers = [_number_or_0(part) for part in params.split(";")]
    if len(numbers) != 3:
        return None
    button = numbers[0]
    column, row = numbers[1] - 1, numbers[2] - 1  # counted from 0
    match button, final:
        case 64, _:  # 64 and 65 are the wheel
            return Mouse("wheel_up", column, row)
        case 65, _:
            return Mouse("wheel_down", column, row)
        case 0, "M":  # the left button goes down
            return Mouse("press", column, row)
        case _:
            return None


def _number_or_0(text: str) -> int:
    """Return the number in `text`; 0 if it is not a number or has more than 8 digits."""
    return int(text) if text.isdecimal() and len(text) < 9 else 0
