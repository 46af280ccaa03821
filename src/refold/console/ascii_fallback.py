"""Replaces characters that the terminal's encoding does not have.

Typographic characters are replaced by similar ASCII characters, and all others by escape
sequences with their code numbers.
"""

import codecs

_SPELLINGS = str.maketrans({
    "…": "...", "·": "-", "•": "*", "●": "*", "○": "o", "›": ">", "‹": "<", "»": ">>",
    "«": "<<", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'", "–": "-",
    "—": "-", "−": "-", "‑": "-", "→": "->", "←": "<-", "↑": "^", "↓": "v", "⇒": "=>",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "×": "x", "∴": "~", "✓": "v", "✗": "x",
    "─": "-", "━": "=", "│": "|", "┃": "|", "└": "|", "├": "|", "┌": "+", "┐": "+",
    "┘": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "█": "#", "░": ".", "▏": "|",
    "▎": "|", "▌": "|", "↳": ">", "\u00a0": " ",
})  # fmt: skip
MAX_CUT_CELLS = 2  # the mark of a cut line can grow by this many cells


def replace_unencodable(text: str, encoding: str) -> str:
    """Return `text` with replacements for the characters that `encoding` lacks."""
    if text.isascii() or is_unicode_encoding(encoding):
        return text
    spelled = "".join(
        letter if _can_encode(letter, encoding) else letter.translate(_SPELLINGS)
        for letter in text
    )
    # Characters that have no other spelling are written as escape sequences.
    try:
        return spelled.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:  # no codec has this name
        return spelled.encode("ascii", "backslashreplace").decode("ascii")


def is_unicode_encoding(encoding: str) -> bool:
    """Return whether the encoding has all characters of Unicode; False if it is unknown."""
    try:
        return codecs.lookup(encoding).name.startswith("utf-")
    except LookupError:
        return False


def _can_encode(letter: str, encoding: str) -> bool:
    """Return whether the encoding is known and has the letter."""
    try:
        letter.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
