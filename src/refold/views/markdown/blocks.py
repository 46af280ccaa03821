"""Find where the blocks of a Markdown text end, line by line as the text arrives.

The algorithm of CommonMark 0.31, with the tables of GitHub: first match the open containers
(quotes, list items), then open the containers that the line begins, then add the rest of the line.
A block is returned when it is finished, a line of code at once; no line is parsed twice. The
functions for starts of blocks take a line without the marks of its containers, its leading tabs
expanded. `spans` parses inline Markdown.
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["words", "heading", "rule", "table", "fence", "code", "closed"]
_DEEPEST = 16  # containers; deeper marks are text
_LONGEST = 4_000  # characters of one block: what is longer is given out in parts
_TALLEST = 64_000  # characters of one table
_ITEM = re.compile(r" {0,3}([-+*]|\d{1,9}[.)])(?=[ \t]|$)")
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)(.*)")
_CLOSING = re.compile(r"(?:^|[ \t])[ \t]*#+$")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(?:(=+)|-+)[ \t]*$")
_QUOTE = re.compile(r" {0,3}> ?")
_LEADING = re.compile(r"[ \t>*+\-0-9.)]*\t")
_DELIMITERS = re.compile(r" {0,3}(?:[|:]|-[-|:])[-|: \t]*$")
_BAR = re.compile(r"(?<!\\)\|")
_COLUMN = re.compile(r":?-+:?")
CODE = 4  # blanks before it that make a line code


class Container(Struct, frozen=True):
    """A quote or a list item that contains a block.

    `sign` is the mark of the item, as "-" or "12."; "" for a quote. `begins`: this is the first
    block of the item, so its sign is printed.
    """

    sign: str = ""
    begins: bool = False


class Leaf(Struct, frozen=True):
    """A block without the marks of its containers.

    "fence" is the line that opens code, each line of code is "code", and "closed" is the line that
    ends it, or "". Indented code has no fence. `level` is that of a heading. `gap`: an empty line
    comes before it, inside so many of its containers; -1: none.
    """

    kind: Kind
    lines: tuple[str, ...]
    around: tuple[Container, ...] = ()
    level: int = 0
    gap: int = -1
    headed: bool = True  # a table: its first line is the head, its second the rule below


class ListItem(Struct, frozen=True):
    """`offset`: the indent of its content. `bare`: no text follows the mark."""

    sign: str
    offset: int
    bare: bool

    @property
    def number(self) -> int | None:
        return int(self.sign[:-1]) if len(self.sign) > 1 else None


class Fence(Struct, frozen=True):
    mark: str
    indent: int

    def ends(self, line: str) -> bool:
        bare = line.strip(" \t")
        same = bare == self.mark[0] * len(bare)
        return same and len(bare) >= len(self.mark) and indent(line) < CODE


class Blocks:
    def __init__(self) -> None:
        self._around = Nesting()
        self._words: list[str] | None = None
        self._table: list[str] | None = None
        self._fence: Fence | None = None
        self._blanks: int | None = None  # empty lines in code that is only indented
        self._size, self._headed = 0, True
        self._gap, self._begun = False, False
        self._found: list[Leaf] = []

    @property
    def last(self) -> str:
        """The last line of the block that is not finished yet."""
        return (self._words or self._table or [""])[-1]

    @property
    def in_paragraph(self) -> bool:
        """Could the next line continue a paragraph?"""
        return bool(self._words)

    def line(self, text: str) -> list[Leaf]:
        """Add a whole line; returns the blocks that it finishes."""
        kept, rest = self._around.walk(unindented(text))
        if self._fence is not None and kept == len(self._around):
            self._in_fence(self._fence, rest)
        elif is_blank(rest):
            self._blank(kept)
        else:
            self._text(kept, rest)
        return self._given()

    def foresee(self, start: str) -> list[Leaf]:
        """Finish the paragraph if a line with this start ends it, however the line continues."""
        if self._words:
            kept, rest = self._around.walk(unindented(start))
            found, title = item(rest), heading(rest)
            inside = kept == len(self._around)
            begins = (
                found and not found.bare and (not inside or _may_interrupt(found, rest))
            )
            if begins or (title and title[1]):
                self._finish()
        return self._given()

    def more(self, text: str) -> list[Leaf]:
        """Add the rest of a line that was too long."""
        if self._fence is not None or self._blanks is not None:
            self._give("code", text)
        elif self._table is not None:
            self._add_row(text)
        else:
            self._add_words(text)
        return self._given()

    def end(self) -> list[Leaf]:
        self._close(0)
        self._finish()
        return self._given()

    def _in_fence(self, open_: Fence, rest: str) -> None:
        if open_.ends(rest):
            self._fence = None
            self._give("closed", rest.strip(" \t"))
        else:
            self._give("code", rest[min(indent(rest), open_.indent) :])

    def _blank(self, kept: int) -> None:
        self._close(kept)
        if self._blanks is not None:
            self._blanks += 1
        else:
            self._finish()
            self._gap = True

    def _text(self, kept: int, rest: str) -> None:
        self._around.fill(kept)
        going_on = self._words is not None and indent(rest) >= CODE
        kept_all = kept == len(self._around)
        if not going_on:
            opened, rest = self._opened(kept, rest)
            lazy = self._words is not None and not kept_all and not opened
            going_on = lazy and not begins_leaf(rest)
            kept_all = kept_all or opened
        if going_on:
            self._add_words(rest)
            return
        if not kept_all:
            self._close(kept)
        self._leaf(rest)

    def _opened(self, kept: int, rest: str) -> tuple[bool, str]:
        """Open the quotes and items that the line begins."""
        opened = False
        while kept < _DEEPEST:
            taken, found = quote(rest), None
            if indent(rest) >= CODE:
                break
            if not taken:
                in_words = self._words is not None and kept == len(self._around)
                found = item(rest)
                if found is None or (in_words and not _may_interrupt(found, rest)):
                    break
                taken = found.offset
            self._close(kept)
            self._finish()
            self._around.open(found)
            opened, kept = True, kept + 1
            rest = rest[taken:]
            if is_blank(rest):
                break
        return opened, rest

    def _leaf(self, rest: str) -> None:
        if is_blank(rest) or (self._words and self._ends_words(self._words, rest)):
            return
        if self._table is not None and indent(rest) < CODE and not begins_leaf(rest):
            self._add_row(rest)
        elif self._words is None and indent(rest) >= CODE:
            self._indented(rest)
        else:
            if self._words is None or begins_leaf(rest):
                self._finish()
            self._begin(rest)

    def _begin(self, rest: str) -> None:
        if found := heading(rest):
            self._give("heading", found[1], level=found[0])
        elif opens := fence(rest):
            self._fence = opens
            self._give("fence", rest.strip(" \t"))
        elif is_rule(rest):
            self._give("rule", rest.strip(" \t"))
        else:
            self._add_words(rest)

    def _ends_words(self, words: list[str], rest: str) -> bool:
        """Does this line turn the paragraph before it into a heading or a table?"""
        if begins_table(words[-1], rest):
            head = words.pop()
            self._finish()
            self._table, self._size, self._headed = [head, rest], len(head), True
            return True
        if level := underline(rest):
            self._words = None
            self._give("heading", *(each.strip(" \t") for each in words), level=level)
            return True
        return False

    def _indented(self, rest: str) -> None:
        if self._blanks is None:
            self._finish()
        for each in (*[""] * (self._blanks or 0), rest):
            self._give("code", each)
        self._blanks = 0

    def _add_words(self, rest: str) -> None:
        self._words = self._words or []
        self._words.append(rest.lstrip(" \t"))
        self._size += len(rest)
        if self._size > _LONGEST:
            self._finish()
            self._words = []

    def _add_row(self, rest: str) -> None:
        self._table = self._table or []
        self._table.append(rest)
        self._size += len(rest)
        if self._size > _TALLEST:
            self._finish()
            self._table, self._headed = [], False

    def _finish(self) -> None:
        """Return the open block."""
        words, table, blanks = self._words, self._table, self._blanks
        self._words = self._table = self._blanks = None
        self._size = 0
        if words:
            self._give("words", *words)
        if table:
            self._give("table", *table)
        if blanks:
            self._gap = True
        if self._fence is not None:
            self._fence = None
            self._give("closed", "")

    def _close(self, kept: int) -> None:
        """Close all containers but the first `kept`."""
        if kept < len(self._around):
            self._finish()
        while len(self._around) > kept:
            if self._around.unsaid:
                self._give("words", "")
            self._around.leave()

    def _give(self, kind: Kind, *lines: str, level: int = 0) -> None:
        around, shared = self._around.place()
        gap = shared if self._gap and self._begun else -1
        headed = self._headed or kind != "table"
        self._found.append(Leaf(kind, lines, around, level, gap, headed))
        self._gap, self._begun = False, True

    def _given(self) -> list[Leaf]:
        found, self._found = self._found, []
        return found


class Nesting:
    """The open containers, from the outermost."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._before: list[_Open] = []  # what was around the last leaf
        self._lists: dict[int, ListItem] = {}  # the last item at each depth

    def __len__(self) -> int:
        return len(self._open)

    def walk(self, rest: str) -> tuple[int, str]:
        """Match the containers that the line continues; returns their number and the rest of the line."""
        for at, each in enumerate(self._open):
            if each.item is None:
                taken = quote(rest)
                if not taken:
                    return at, rest
            else:
                taken = each.item.offset
                blank = is_blank(rest)
                if (blank and each.bare) or (not blank and indent(rest) < taken):
                    return at, rest
            rest = rest[taken:]
        return len(self._open), rest

    def fill(self, kept: int) -> None:
        """The first so many containers have content now."""
        for each in self._open[:kept]:
            each.bare = False

    def open(self, found: ListItem | None) -> None:
        """Open a quote, or an item; an item of the same list gets the next number."""
        depth = len(self._open)
        self._forget(depth + 1)
        before = self._lists.pop(depth, None)
        sign = ""
        if found is not None:
            sign, number = found.sign, before.number if before else None
            if before and number is not None and before.sign[-1] == sign[-1]:
                sign = f"{number + 1}{sign[-1]}"
            self._lists[depth] = ListItem(sign, found.offset, found.bare)
        self._open.append(_Open(found, sign))

    def leave(self) -> None:
        """Close the innermost."""
        self._open.pop()

    @property
    def unsaid(self) -> bool:
        """Is the innermost an item whose marker is not printed yet?"""
        return bool(self._open) and self._open[-1].begins

    def place(self) -> tuple[tuple[Container, ...], int]:
        """The containers of a block, and how many of them it shares with the block before."""
        self._forget(len(self._open))
        around = tuple(Container(each.sign, each.begins) for each in self._open)
        shared = _shared(self._before, self._open)
        for each in self._open:
            each.begins = False
        self._before = list(self._open)
        return around, shared

    def _forget(self, depth: int) -> None:
        """The lists from that depth on have ended."""
        for at in [at for at in self._lists if at >= depth]:
            del self._lists[at]


class _Open:
    def __init__(self, item: ListItem | None, sign: str) -> None:
        self.item, self.sign = item, sign
        self.bare = item is not None and item.bare  # nothing stands in it yet
        self.begins = item is not None


def _shared(before: Sequence[_Open], now: Sequence[_Open]) -> int:
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


def _may_interrupt(found: ListItem, rest: str) -> bool:
    """A paragraph is interrupted by an item with text, and only by a list that begins with 1."""
    return not found.bare and found.number in (None, 1) and not underline(rest)


def unindented(line: str) -> str:
    """Expand the tabs before the text."""
    found = _LEADING.match(line)
    return found[0].expandtabs(4) + line[found.end() :] if found else line


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def is_blank(line: str) -> bool:
    return not line.strip(" \t")


def quote(line: str) -> int:
    """The length of a quote mark; 0: there is none."""
    found = _QUOTE.match(line)
    return found.end() if found else 0


def item(line: str) -> ListItem | None:
    found = _ITEM.match(line)
    if found is None or _RULE.match(line):
        return None
    rest = line[found.end() :].expandtabs(4)
    blanks = indent(rest)
    bare = is_blank(rest)
    # More blanks than that before code; none before nothing.
    wide = 1 if bare or blanks > CODE else blanks
    return ListItem(found[1], found.end() + wide, bare)


def fence(line: str) -> Fence | None:
    found = _FENCE.match(line)
    return Fence(found[2], len(found[1])) if found else None


def heading(line: str) -> tuple[int, str] | None:
    """Level and text."""
    found = _HEADING.match(line)
    if found is None:
        return None
    return len(found[1]), _CLOSING.sub("", found[2].strip(" \t"))


def is_rule(line: str) -> bool:
    return _RULE.match(line) is not None


def underline(line: str) -> int:
    """The level of the heading that this line makes of the paragraph before; 0: none."""
    found = _UNDERLINE.match(line)
    return 0 if found is None else 1 if found[1] else 2


def begins_table(head: str, line: str) -> bool:
    if "|" not in head or not _DELIMITERS.match(line):
        return False
    columns = row(line)
    return len(columns) == len(row(head)) > 0 and all(map(_COLUMN.fullmatch, columns))


def row(line: str) -> list[str]:
    """The cells of a table row."""
    found = [cell.strip(" \t") for cell in _BAR.split(line.strip(" \t"))]
    if found and not found[0]:
        del found[0]
    if found and not found[-1]:
        del found[-1]
    return [cell.replace("\\|", "|") for cell in found]


def begins_leaf(line: str) -> bool:
    """Does this line end a paragraph?"""
    return bool(heading(line) or is_rule(line) or fence(line))
