"""Shows a long paste as one mark, `[pasted 40 lines]`, in the text of a prompt. Pure.

The mark is replaced by the pasted text when the message is sent.
"""

import re

from refold.views.pastes import MAX_SHOWN_LINES, clean_paste, paste_label


class PasteMarks:
    """All pastes of this process by their marks: texts in the history may contain old marks."""

    def __init__(self) -> None:
        self._texts = dict[str, str]()

    def text_to_show(self, pasted: str, max_lines: int = MAX_SHOWN_LINES) -> str:
        """Return the pasted text; if it has more than `max_lines` lines, return a mark for it.

        Marks of different texts are numbered if they would be the same.
        """
        text = clean_paste(pasted)
        label = paste_label(text, max_lines)
        if not label:
            return text
        mark, number = label, 1
        while mark in self._texts and self._texts[mark] != text:
            number += 1
            mark = f"{label.removesuffix(']')}, {number}]"
        self._texts[mark] = text
        return mark

    def restore_pastes(self, typed: str) -> str:
        """Return the typed text with each mark replaced by the pasted text."""
        if "[pasted " not in typed or not self._texts:
            return typed
        marks = re.compile("|".join(map(re.escape, self._texts)))
        return marks.sub(lambda match: self._texts[match[0]], typed)

    def mark_before(self, typed: str) -> str:
        """Return the mark with which `typed` ends, or ""."""
        if not typed.endswith("]"):
            return ""
        return next((mark for mark in self._texts if typed.endswith(mark)), "")
