"""Repairs JSON that a model wrote, but only in ways that cannot change its meaning.

Raw control characters in strings are escaped. A comma before a closing bracket is left out. An
object that was encoded twice is decoded once more. An object that is repeated, or follows an
empty object, is used once. A string or bracket that is cut off is never completed. `json_check`
checks the result.
"""

import msgspec

_SPACE_CHARS = " \t\r\n"
_CLOSING_CHARS = "}]"


def repair_object(text: str) -> bytes | None:
    """Return `text` as a JSON object on one line, repaired if necessary.

    A string that contains an object becomes that object, and `null` the empty object. Return
    None if the text is still not an object.
    """
    repaired = _repair(_without_copies(text))
    if repaired is not None and repaired.startswith(b'"'):
        try:
            inner = msgspec.json.decode(repaired, type=str).strip()
        except msgspec.DecodeError:
            return None
        repaired = _repair(inner or "{}")
    if repaired == b"null":
        return b"{}"
    is_object = repaired is not None and repaired.startswith(b"{")
    return repaired if is_object else None


def _without_copies(text: str) -> str:
    """Return `text` with its object only once: some servers repeat it, or send an empty object
    first.
    """
    text = text.strip()
    after_empty = text.removeprefix("{}")
    if after_empty != text and after_empty.lstrip().startswith("{"):
        return after_empty
    first_half = text[: len(text) // 2]
    is_repeated = text.startswith("{") and text == first_half * 2
    return first_half if is_repeated else text


def _repair(text: str) -> bytes | None:
    """Return the JSON on one line; None if it is still invalid."""
    try:
        return msgspec.json.format(_escape_controls(text), indent=-1).encode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _escape_controls(text: str) -> str:
    """Escape control characters in strings, and drop commas before closing brackets."""
    pieces: list[str] = []
    in_string = False
    is_escaped = False  # whether a backslash is directly before the letter
    for index, letter in enumerate(text):
        if in_string:
            if letter >= " ":
                pieces.append(letter)
            elif is_escaped:  # the backslash, which was written already, begins the escape
                pieces.append(f"u{ord(letter):04x}")
            else:
                pieces.append(f"\\u{ord(letter):04x}")
            in_string = is_escaped or letter != '"'
            is_escaped = letter == "\\" and not is_escaped
            continue
        is_last_comma = letter == "," and _is_before_closing(text, index + 1)
        if is_last_comma and _is_after_value(pieces):
            continue
        pieces.append(letter)
        in_string = letter == '"'
    return "".join(pieces)


def _is_before_closing(text: str, position: int) -> bool:
    """Whether only spaces are between `position` and a closing bracket."""
    while position < len(text) and text[position] in _SPACE_CHARS:
        position += 1
    return position < len(text) and text[position] in _CLOSING_CHARS


def _is_after_value(pieces: list[str]) -> bool:
    """Whether the last piece ends a value, and is not an opening bracket, comma or colon."""
    last = next((piece for piece in reversed(pieces) if piece not in _SPACE_CHARS), "")
    return last not in "{[,:"
