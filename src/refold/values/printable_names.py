"""Makes file names printable, finds the original of a printed name, and shortens text.

A name may contain line breaks, terminal control sequences, characters that reverse the text
direction, and bytes that are not UTF-8. Code that shows a name shows `escape_name(name)`.
Clients also escape everything that they print.
"""

import os
import re
import sys

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPE_PATTERN = r"\\(?:n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"


def escape_name(name: str) -> str:
    """Return `name` on one line, with its invisible characters escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escape(c) for c in name)


def unescape_name(name: str) -> str:
    """Return the name that `escape_name` shows as `name`.

    Only the escapes that `escape_name` makes are reversed. A crafted `\\x2eenv` stays: as
    `.env`, it could get past a permission rule for that file.
    """
    return re.sub(_ESCAPE_PATTERN, _unescape, name)


def shorten(text: str, chars: int) -> str:
    """Return `text`, cut to at most `chars` characters; "…" then replaces the rest."""
    return text if len(text) <= chars else f"{text[: chars - 1].rstrip()}…"


def _escape(letter: str) -> str:
    """Return the escape of one character, such as "\\n" or "\\x1b"."""
    code = ord(letter)
    # A byte that is not valid UTF-8, as decoded by os.fsdecode.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _SHORT_ESCAPES.get(letter, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescape(match: re.Match[str]) -> str:
    """Return the character of an escape. An escape that `_escape` would not make stays."""
    escape = match[0]
    for letter, short_escape in _SHORT_ESCAPES.items():
        if escape == short_escape:
            return letter
    code = int(escape[2:], 16)
    if escape[1] == "x" and code >= 0x80:  # a byte that is not valid UTF-8
        return os.fsdecode(bytes([code]))
    if code > sys.maxunicode:
        return escape
    letter = chr(code)
    is_own_escape = not letter.isprintable() and _escape(letter) == escape
    return letter if is_own_escape else escape
