"""Makes a label that replaces a long paste in the text of a prompt. Pure.

Without the label, the whole paste would be drawn again at each key.
"""

from refold.views.strip_escapes import without_escapes

MAX_SHOWN_LINES = 15
MAX_SHOWN_CHARS = 1_500


def clean_paste(text: str) -> str:
    """Return a pasted text without control sequences, and without line ends at its end."""
    return without_escapes(text).rstrip("\n")


def paste_label(text: str, max_lines: int = MAX_SHOWN_LINES) -> str:
    """Return the label for a pasted text; "" if it has at most `max_lines` lines."""
    lines = text.count("\n") + 1
    if lines <= max_lines and len(text) <= MAX_SHOWN_CHARS:
        return ""
    return (
        f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"
    )
