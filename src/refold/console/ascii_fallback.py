"""Replaces characters that the terminal's encoding does not have.

Typographic signs become similar ASCII; other characters become their code number, so nothing is lost.
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
MAX_CUT_CELLS = 2  # cells by which the mark of a cut line can grow


def replace_unencodable(text: str, encoding: str) -> str:
    """Return `text` with the characters that `encoding` has."""
    if text.isascii() or is_unicode_encoding(encoding):
        return text
    letters = "".join(
        letter if _can_encode(letter, encoding) else letter.translate(_SPELLINGS)
        for letter in text
    )
    try:
        return letters.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:  # no codec has this name
        return letters.encode("ascii", "backslashreplace").decode("ascii")


def is_unicode_encoding(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name.startswith("utf-")
    except LookupError:
        return False


def _can_encode(letter: str, encoding: str) -> bool:
    try:
        letter.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
