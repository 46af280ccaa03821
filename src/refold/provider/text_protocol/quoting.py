"""Distinguishes quoted text from the model's own text, line by line.

A call starts its line. Indented text is an example of code, and a line after `>` is a quote,
which continues up to the next blank line. `parse` handles fences.
"""

CALL_BEGINNINGS = "<[{`~"  # the first characters of calls and of fences around them
_CODE_INDENT_SPACES = 4  # spaces before a line of an indented code block


class QuoteState:
    """The state at the end of the text so far. It does not depend on how the text was split."""

    def __init__(self) -> None:
        self.quoted = False
        self._line = ""  # the first characters of the current line
        self._blank = True

    @property
    def at_line_start(self) -> bool:
        """Whether the text ends at the start of a line, apart from a few spaces."""
        return self._blank and not self.is_indented

    @property
    def is_indented(self) -> bool:
        """Whether the text ends after the indentation of a code block."""
        return self._blank and (
            "\t" in self._line or len(self._line) >= _CODE_INDENT_SPACES
        )

    def feed(self, text: str) -> None:
        """Add text to the text so far. A blank line ends a quote."""
        *complete_lines, unfinished_line = text.split("\n")
        for line in complete_lines:
            self._add(line)
            self.quoted = self.quoted and not self._blank
            self._line, self._blank = "", True
        self._add(unfinished_line)

    def _add(self, text: str) -> None:
        """Add text without a line break to the current line."""
        missing_chars = _CODE_INDENT_SPACES - len(self._line)
        self._line += text[:missing_chars]
        if self._blank and text.strip():
            self._blank = False
            # a `>` after more spaces is code
            self.quoted = self.quoted or text.lstrip().startswith(">")
