"""Long pastes, which a label replaces in the text that is being typed. Pure.

Without the label, each key would draw the whole paste again.
"""

from refold.views.strip_escapes import without_escapes

MAX_SHOWN_LINES = 15
MAX_SHOWN_CHARS = 1_500


def clean_paste(text: str) -> str:
    """A terminal's paste, without control sequences and trailing line ends."""
    return without_escapes(text).rstrip("\n")


def paste_label(text: str, max_lines: int = MAX_SHOWN_LINES) -> str:
    """The label for a paste, or "" if it is short enough to be shown itself."""
    lines = text.count("\n") + 1
    if lines <= max_lines and len(text) <= MAX_SHOWN_CHARS:
        return ""
    return (
        f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"
    )
