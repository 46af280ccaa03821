"""Where in its line, and in what, the words of an answer stand.

A call begins its line. What stands further in is code that is shown, and what
stands behind a `>` is a quote, up to the next blank line. Fences are not its
business: `heard` goes over those.
"""

BEGINNINGS = "<[{`~"  # what a call, or a fence around one, may begin with
_CODE = 4  # blanks before a line make code of it


class Margin:
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
