"""Makes file names printable, finds the file again from its printed name, and shortens text.

A name may contain line breaks, terminal control sequences, characters that reverse the text
direction, and bytes that are not UTF-8. Code that shows a name shows `escape_name(name)`.
Clients escape their whole output, too.
"""

import os
import re

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPE_PATTERN = r"\\(?:n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"


def escape_name(name: str) -> str:
    """`name` on one line, in characters that can be seen."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escape(c) for c in name)


def unescape_name(name: str) -> str:
    """The name that `escape_name` shows as `name`.

    Only what `escape_name` itself would write is reversed: a crafted name cannot hide a plain
    letter from a rule behind an escape.
    """
    return re.sub(_ESCAPE_PATTERN, _unescape, name)


def shorten(text: str, chars: int) -> str:
    """`text` cut to this number of characters; "…" stands for the rest."""
    return text if len(text) <= chars else f"{text[: chars - 1].rstrip()}…"


def _escape(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8, as os.fsdecode gives it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _SHORT_ESCAPES.get(letter, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescape(match: re.Match[str]) -> str:
    text = match[0]
    for letter, short in _SHORT_ESCAPES.items():
        if text == short:
            return letter
    code = int(text[2:], 16)
    if text[1] == "x" and code >= 0x80:
        return os.fsdecode(bytes([code]))
    letter = chr(code) if code < 0x110000 else ""
    return (
        letter if letter and _escape(letter) == text and not letter.isprintable() else text
    )
