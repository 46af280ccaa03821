"""Long pastes: a label stands for one in the text that is being typed. Pure.

Without it, each key would draw the whole paste again.
"""

from refold.views.strip_escapes import without_escapes

MAX_SHOWN_LINES = 15
MAX_SHOWN_CHARS = 1_500


def clean_paste(pasted: str) -> str:
    """What a terminal sends as a paste, without control sequences and line ends behind it."""
    return without_escapes(pasted).rstrip("\n")


def paste_label(text: str, max_lines: int = MAX_SHOWN_LINES) -> str:
    """What stands for this paste; "": it has at most so many lines, and is shown itself."""
    lines = text.count("\n") + 1
    if lines <= max_lines and len(text) <= MAX_SHOWN_CHARS:
        return ""
    return (
        f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"
    )
