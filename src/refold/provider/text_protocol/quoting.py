"""Tells quoted text from the model's own, line by line.

A call starts its line. Indented text is code that is shown, and a line after `>` is a
quote, up to the next blank line. `parse` handles fences.
"""

BEGINNINGS = "<[{`~"  # what a call, or a fence around one, may begin with
_CODE = 4  # blanks before a line make code of it


class QuoteState:
    """Has heard all the words up to here, however they were cut."""

    def __init__(self) -> None:
        self.quoted = False
        self._line = ""  # its beginning: more is not needed
        self._blank = True

    @property
    def begins(self) -> bool:
        """Is this where a line begins, or nearly?"""
        return self._blank and not self.indented

    @property
    def indented(self) -> bool:
        return self._blank and ("\t" in self._line or len(self._line) >= _CODE)

    def feed(self, words: str) -> None:
        *lines, last = words.split("\n")
        for line in lines:
            self._add(line)
            self.quoted = self.quoted and not self._blank
            self._line, self._blank = "", True
        self._add(last)

    def _add(self, words: str) -> None:
        self._line = (self._line + words[:_CODE])[:_CODE]
        if self._blank and words.strip():
            self._blank = False
            # what is too far in is code, and then no call either
            self.quoted = self.quoted or words.lstrip().startswith(">")
