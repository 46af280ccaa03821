"""Words that come in pieces, broken between words where the screen ends.

What was given out stays where it is: a word is held back until it is whole,
and then stands on this line or on the next. A word wider than the screen is left to
the terminal, so that an address can still be copied.
"""

from refold.views.cells import cells
from refold.views.styled import Line, Link, Piece, Style

_DOT = " · "
_KEPT = "\x1f"  # a blank at which nothing is broken; no visible text has one


class Flow:
    """`room` is how many cells a line has; 0: nothing is broken."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.indent = 0  # of the lines that go on from a broken one
        self._column = 0
        self._word: list[Piece] = []
        self._blank = ""

    def put(self, style: Style | Link, text: str) -> list[Piece]:
        """Take in text of one style; give out what stands where by now."""
        out: list[Piece] = []
        start = 0
        for at, letter in enumerate(text):
            if letter in " \n":
                self._grow(style, text[start:at])
                out += self._settle()
                start = at + 1
                if letter == "\n":
                    out += self._end_line()
                else:
                    self._blank += " "
        self._grow(style, text[start:])
        return out

    def end(self) -> list[Piece]:
        return self._settle()

    def _grow(self, style: Style | Link, text: str) -> None:
        if not text:
            return
        if self._word and self._word[-1][0] == style:
            text = self._word.pop()[1] + text
        self._word.append((style, text))

    def _end_line(self) -> list[Piece]:
        self._column, self._blank = 0, ""  # blanks at the end of a line are nothing
        return [("plain", "\n")]

    def _settle(self) -> list[Piece]:
        if not self._word:
            return []
        wide = sum(cells(text) for _, text in self._word)
        end = self._column + len(self._blank) + wide
        out: list[Piece] = []
        if self.room and end > self.room and self._column > self.indent:
            out.append(("plain", "\n" + " " * self.indent))
            self._column = self.indent + wide
        else:
            if self._blank:
                out.append(("plain", self._blank))
            self._column = end
        if self.room and self._column > self.room:  # the terminal breaks so wide a word
            self._column = (self._column - 1) % self.room + 1
        out += self._word
        self._word, self._blank = [], ""
        return out


def fitted(line: Line, room: int, indent: int = 0) -> Line:
    """A line of our own words, broken between them where it is too long.

    Short things with dots between them are broken at the dots: "n no, and why" stays whole.
    """
    whole = "".join(text for _, text in line)
    if cells(whole) <= room:
        return line
    kept = _DOT in whole and all(
        cells(part) + 2 <= room - indent
        for row in whole.split("\n")
        for part in row.split(_DOT)
    )
    flow = Flow(room)
    flow.indent = indent
    pieces = [
        piece for style, text in line
        for piece in flow.put(style, _kept_whole(text) if kept else text)
    ]  # fmt: skip
    pieces += flow.end()
    return tuple((style, text.replace(_KEPT, " ")) for style, text in pieces)


def _kept_whole(text: str) -> str:
    return f"{_KEPT}· ".join(part.replace(" ", _KEPT) for part in text.split(_DOT))
