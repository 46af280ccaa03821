"""A model's words as they come in, with the little Markdown that a line can show.

Headings, **strong** words, `code`, fenced code and bullets get a style; all
else stays as it was written. Nothing is ever taken back: a mark is left out
only once its other half has come, on the same line. Text must be visible
(`escape`) before it comes here.
"""

import re

from refold.views.flow import Flow
from refold.views.styled import Piece, Style

_MARK = re.compile(r"`+|(?<![^\s(\[\"'])\*\*(?=[^\s*/]|$)")
_OPENING = re.compile(r"[ \t]*(?:`{0,2}|~{0,2}|#{0,6} *|[-*+] *|[0-9]{1,3}(?:[.)] *)?)\Z")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_HEADING = re.compile(r"#{1,6} +")
_ITEM = re.compile(r"([ \t]*)([-*+]|[0-9]{1,3}[.)]) +")
_HELD = 400  # characters that may wait for the other half of a mark


class Prose:
    """With `marks` false the words pass as they are, only broken into lines."""

    def __init__(self, room: int = 0, *, marks: bool = True) -> None:
        self._flow, self._marks = Flow(room), marks
        self._held = ""
        self._before = ""  # the last character that went out of this line
        self._style: Style = "plain"  # of the line
        self._fresh, self._fenced = True, False

    def add(self, text: str) -> list[Piece]:
        if not self._marks:
            return self._flow.put("plain", text)
        self._held += text
        out: list[Piece] = []
        while "\n" in self._held:
            line, _, self._held = self._held.partition("\n")
            out += self._take(line, whole=True)
            out += self._newline()
        rest, self._held = self._held, ""
        return out + self._take(rest, whole=False)

    def end(self) -> list[Piece]:
        """What was still held back."""
        held, self._held = self._held, ""
        return self._take(held, whole=True) + self._flow.end()

    def _newline(self) -> list[Piece]:
        fenced, self._fresh, self._style = self._fenced, True, "plain"
        self._before = ""
        out = self._flow.keep("plain", "\n") if fenced else self._flow.put("plain", "\n")
        self._flow.indent = 0
        return out

    def _take(self, text: str, *, whole: bool) -> list[Piece]:
        """All of `text`, which holds no line end, or as much of it as is certain."""
        if self._fresh:
            if not whole and (not text or _OPENING.match(text)):
                self._held = text + self._held
                return []
            self._fresh = False
            if _FENCE.match(text):
                self._fenced, self._style = not self._fenced, "dim"
            elif self._fenced:
                self._style = "code"
            else:
                return self._open(text, whole=whole)
        if self._style in ("dim", "code") or self._fenced:
            return self._flow.keep(self._style, text)
        return self._inline(text, whole=whole)

    def _open(self, text: str, *, whole: bool) -> list[Piece]:
        if heading := _HEADING.match(text):
            self._style = "heading"
            return self._inline(text[heading.end() :], whole=whole)
        if item := _ITEM.match(text):
            sign = "•" if item[2] in "-*+" else item[2]
            self._flow.indent = len(item[1].expandtabs(4)) + len(sign) + 1
            start = f"{item[1].expandtabs(4)}{sign} "
            out = self._flow.keep("plain", start)
            return out + self._inline(text[item.end() :], whole=whole)
        return self._inline(text, whole=whole)

    def _inline(self, text: str, *, whole: bool) -> list[Piece]:
        out: list[Piece] = []
        while mark := self._mark_in(text):
            start = mark.start() - len(self._before)
            opened = start + len(mark[0])
            end = _closing(text, mark[0], opened, whole=whole)
            if end < 0 and not whole and len(text) - start < _HELD:
                break
            out += self._put(self._style, text[:start])
            if end < 0:
                out += self._put(self._style, mark[0])
                text = text[opened:]
                continue
            style = "code" if mark[0][0] == "`" else "strong"
            out += self._put(style, text[opened:end])
            text, self._before = text[end + len(mark[0]) :], mark[0][-1]
        else:
            last = len(text) if whole or text[-1:] != "*" else len(text.rstrip("*"))
            self._held = text[last:] + self._held
            return out + self._put(self._style, text[:last])
        out += self._put(self._style, text[:start])
        self._held = text[start:] + self._held
        return out

    def _mark_in(self, text: str) -> re.Match[str] | None:
        """The next mark. What stands before `text` on its line decides with it."""
        return _MARK.search(self._before + text, len(self._before))

    def _put(self, style: Style, text: str) -> list[Piece]:
        self._before = text[-1:] or self._before
        return self._flow.put(style, text)


def _closing(text: str, mark: str, start: int, *, whole: bool) -> int:
    """Where the mark is that closes this one, or -1."""
    at = text.find(mark, start)
    if at <= start:
        return -1
    # More of the same may still come: then it is another mark.
    return at if whole or at + len(mark) < len(text) else -1
