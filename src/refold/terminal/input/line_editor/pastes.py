"""Long pastes, shown as one mark in the typed text. Pure.

The user sees and edits `[pasted 40 lines]`; the pasted text is put in its place when the message is
sent.
"""

import re

from refold.views.pastes import MAX_SHOWN_LINES, clean_paste, paste_label


class PasteMarks:
    """The pastes of this prompt and earlier ones, whose marks history may contain."""

    def __init__(self) -> None:
        self._texts = dict[str, str]()

    def text_to_show(self, pasted: str, max_lines: int = MAX_SHOWN_LINES) -> str:
        """Return the text to show for a paste: itself, or a mark if it has more lines."""
        text = clean_paste(pasted)
        if not (label := paste_label(text, max_lines)):
            return text
        mark, number = label, 1
        while self._texts.get(mark, text) != text:
            number += 1
            mark = f"{label[:-1]}, {number}]"
        self._texts[mark] = text
        return mark

    def restore_pastes(self, typed: str) -> str:
        """Return the typed text with each mark replaced by its paste."""
        if "[pasted " not in typed or not self._texts:
            return typed
        marks = re.compile("|".join(map(re.escape, self._texts)))
        return marks.sub(lambda found: self._texts[found[0]], typed)

    def mark_before(self, typed: str) -> str:
        """Return the mark at the end of the text, or "" if there is none."""
        if not typed.endswith("]"):
            return ""
        return next((mark for mark in self._texts if typed.endswith(mark)), "")
