"""Repairs of JSON that a model wrote: only such as cannot change what was meant.

Raw control characters within strings are escaped, a comma before a closing bracket is left
out, and an object that was encoded twice is decoded once. A string or bracket that is cut off
is never completed. `json_check` checks what comes of it.
"""

import msgspec

_SPACE = " \t\r\n"
_CLOSES = "}]"


def repaired_object(text: str) -> bytes | None:
    """`text` as a JSON object on one line; None if these repairs do not make one of it."""
    found = _repaired(text)
    if found is not None and found.startswith(b'"'):
        try:
            inner = msgspec.json.decode(found, type=str).strip()
        except msgspec.DecodeError:
            return None
        found = _repaired(inner or "{}")
    if found == b"null":
        return b"{}"
    return found if found is not None and found.startswith(b"{") else None


def _repaired(text: str) -> bytes | None:
    try:
        return msgspec.json.format(_escaped(text), indent=-1).encode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _escaped(text: str) -> str:
    pieces: list[str] = []
    quoted = escaped = False
    for at, letter in enumerate(text):
        if quoted:
            if letter < " ":
                # Behind a backslash it is a line break all the same, not an escape of it.
                piece = f"u{ord(letter):04x}" if escaped else f"\\u{ord(letter):04x}"
                pieces.append(piece)
            else:
                pieces.append(letter)
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == "," and _closes_next(text, at + 1) and _is_after_value(pieces):
            continue
        else:
            pieces.append(letter)
            quoted = letter == '"'
    return "".join(pieces)


def _closes_next(text: str, at: int) -> bool:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at < len(text) and text[at] in _CLOSES


def _is_after_value(pieces: list[str]) -> bool:
    last = next((piece for piece in reversed(pieces) if piece not in _SPACE), "")
    return last not in "{[,:"
