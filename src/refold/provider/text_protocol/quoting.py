"""Tells quoted text from the model's own, line by line.

A call starts its line. Indented text is code that is shown, and a line after `>` is a
quote, up to the next blank line. `parse` handles fences.
"""

CALL_BEGINNINGS = "<[{`~"  # the first characters of calls and of fences around them
_CODE_INDENT_SPACES = 4  # spaces before a line of an indented code block


class QuoteState:
    """The state after all text so far, however it was split."""

    def __init__(self) -> None:
        self.quoted = False
        self._line = ""  # its first characters
        self._blank = True

    @property
    def at_line_start(self) -> bool:
        """Return True at the start of a line, apart from some spaces."""
        return self._blank and not self.is_indented

    @property
    def is_indented(self) -> bool:
        return self._blank and (
            "\t" in self._line or len(self._line) >= _CODE_INDENT_SPACES
        )

    def feed(self, text: str) -> None:
        *lines, last = text.split("\n")
        for line in lines:
            self._add(line)
            self.quoted = self.quoted and not self._blank
            self._line, self._blank = "", True
        self._add(last)

    def _add(self, text: str) -> None:
        self._line = (self._line + text[:_CODE_INDENT_SPACES])[:_CODE_INDENT_SPACES]
        if self._blank and text.strip():
            self._blank = False
            # a `>` after more spaces is code
            self.quoted = self.quoted or text.lstrip().startswith(">")
