"""What a line of Markdown can begin, by CommonMark 0.31 and GitHub's tables. Pure.

A line comes without the marks of its containers, its leading tabs expanded.
"""

import re

from msgspec import Struct

CODE = 4  # blanks before it that make a line code
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
