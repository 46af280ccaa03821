"""What stands for letters and signs that a terminal's encoding does not have.

Typographic signs are spelled with what a typewriter has; a letter that has no such
spelling is written as its number, so that nothing is lost and nothing is guessed.
"""

import codecs

_SPELLED = str.maketrans({
    "…": "...", "·": "-", "•": "*", "●": "*", "○": "o", "›": ">", "‹": "<", "»": ">>",
    "«": "<<", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'", "–": "-",
    "—": "-", "−": "-", "‑": "-", "→": "->", "←": "<-", "↑": "^", "↓": "v", "⇒": "=>",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "×": "x", "∴": "~", "✓": "v", "✗": "x",
    "─": "-", "━": "=", "│": "|", "┃": "|", "└": "|", "├": "|", "┌": "+", "┐": "+",
    "┘": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "█": "#", "░": ".", "▏": "|",
    "▎": "|", "▌": "|", "\u00a0": " ",
})  # fmt: skip
MOST = 2  # cells by which a sign that a line was cut at can grow


def spelled(text: str, encoding: str) -> str:
    """`text` in letters that `encoding` has."""
    if text.isascii() or is_all_of_unicode(encoding):
        return text
    kept = "".join(
        each if _has(each, encoding) else each.translate(_SPELLED) for each in text
    )
    try:
        return kept.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:  # a name that no codec has
        return kept.encode("ascii", "backslashreplace").decode("ascii")


def is_all_of_unicode(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name.startswith("utf-")
    except LookupError:
        return False


def _has(letter: str, encoding: str) -> bool:
    try:
        letter.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
