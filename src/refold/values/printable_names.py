"""Makes file names printable, finds the file again from its printed name, and shortens text.

A name may contain line breaks, terminal control sequences, characters that reverse the text
direction, and bytes that are not UTF-8. Code that shows a name shows `escaped(name)`.
Clients escape their whole output, too.
"""

import os
import re

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPE = r"\\(?:n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"


def escaped(name: str) -> str:
    """`name` on one line, in characters that can be seen."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escape(c) for c in name)


def unescaped(name: str) -> str:
    """The name that `escaped` shows as `name`.

    Only what `escaped` itself would write is reversed: a crafted name cannot hide a plain
    letter from a rule behind an escape.
    """
    return re.sub(_ESCAPE, _unescape, name)


def shorten(text: str, chars: int) -> str:
    """`text` in at most so many characters; "…" stands for the rest."""
    return text if len(text) <= chars else f"{text[: chars - 1].rstrip()}…"


def _escape(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8, as os.fsdecode gives it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _SHORT.get(letter, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescape(found: re.Match[str]) -> str:
    text = found[0]
    for letter, short in _SHORT.items():
        if text == short:
            return letter
    code = int(text[2:], 16)
    if text[1] == "x" and code >= 0x80:
        return os.fsdecode(bytes([code]))
    letter = chr(code) if code < 0x110000 else ""
    return (
        letter if letter and _escape(letter) == text and not letter.isprintable() else text
    )
