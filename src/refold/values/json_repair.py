"""Repairs of JSON that a model wrote: only those that cannot change its meaning.

Raw control characters within strings are escaped, a comma before a closing bracket is left
out, an object that was encoded twice is decoded once, and of one that comes twice, or behind an
empty one, one is left. A string or bracket that is cut off
is never completed. `json_check` checks the result.
"""

import msgspec

_SPACE_CHARS = " \t\r\n"
_CLOSING_CHARS = "}]"


def repair_object(text: str) -> bytes | None:
    """`text` as a JSON object on one line; None if these repairs do not make one of it."""
    repaired = _repair(_without_copies(text))
    if repaired is not None and repaired.startswith(b'"'):
        try:
            inner = msgspec.json.decode(repaired, type=str).strip()
        except msgspec.DecodeError:
            return None
        repaired = _repair(inner or "{}")
    if repaired == b"null":
        return b"{}"
    return repaired if repaired is not None and repaired.startswith(b"{") else None


def _without_copies(text: str) -> str:
    """The object once: some servers repeat it, or put an empty one before it."""
    text = text.strip()
    if text.startswith("{}") and text[2:].lstrip().startswith("{"):
        return text[2:]
    half = len(text) // 2
    twice = text.startswith("{") and text == text[:half] * 2
    return text[:half] if twice else text


def _repair(text: str) -> bytes | None:
    try:
        return msgspec.json.format(_escape_controls(text), indent=-1).encode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _escape_controls(text: str) -> str:
    pieces: list[str] = []
    quoted = escaped = False
    for index, letter in enumerate(text):
        if quoted:
            if letter < " ":
                # After a backslash it is still a line break, not an escape.
                piece = f"u{ord(letter):04x}" if escaped else f"\\u{ord(letter):04x}"
                pieces.append(piece)
            else:
                pieces.append(letter)
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == "," and _closes_next(text, index + 1) and _is_after_value(pieces):
            continue
        else:
            pieces.append(letter)
            quoted = letter == '"'
    return "".join(pieces)


def _closes_next(text: str, position: int) -> bool:
    while position < len(text) and text[position] in _SPACE_CHARS:
        position += 1
    return position < len(text) and text[position] in _CLOSING_CHARS


def _is_after_value(pieces: list[str]) -> bool:
    last = next((piece for piece in reversed(pieces) if piece not in _SPACE_CHARS), "")
    return last not in "{[,:"
