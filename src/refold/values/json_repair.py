"""Repairs of JSON that a model wrote: only such as cannot change what was meant.

Raw control characters within strings are escaped, a comma before a closing bracket is left
out, an object that was encoded twice is decoded once, and of one that comes twice, or behind an
empty one, one is left. A string or bracket that is cut off
is never completed. `json_check` checks what comes of it.
"""

import msgspec

_SPACE = " \t\r\n"
_CLOSES = "}]"


def repaired_object(text: str) -> bytes | None:
    """`text` as a JSON object on one line; None if these repairs do not make one of it."""
    found = _repaired(_once(text))
    if found is not None and found.startswith(b'"'):
        try:
            inner = msgspec.json.decode(found, type=str).strip()
        except msgspec.DecodeError:
            return None
        found = _repaired(inner or "{}")
    if found == b"null":
        return b"{}"
    return found if found is not None and found.startswith(b"{") else None


def _once(text: str) -> str:
    """An object that some servers write again as a whole, or behind an empty one."""
    text = text.strip()
    if text.startswith("{}") and text[2:].lstrip().startswith("{"):
        return text[2:]
    half = len(text) // 2
    twice = text.startswith("{") and text == text[:half] * 2
    return text[:half] if twice else text


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
