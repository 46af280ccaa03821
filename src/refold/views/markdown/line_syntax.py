"""Recognizes what one line of Markdown begins: an item, a heading, a fence, a rule, a table.

The functions get a line without the marks of its containers and with leading tabs expanded
(`expand_indent`). They know nothing about the lines before it: `blocks` decides which block
the line continues or begins.
"""

import re

from msgspec import Struct

_ITEM_PATTERN = re.compile(r" {0,3}([-+*]|\d{1,9}[.)])(?=[ \t]|$)")
_FENCE_PATTERN = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_HEADING_PATTERN = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)(.*)")
_CLOSING_PATTERN = re.compile(r"(?:^|[ \t])[ \t]*#+$")
_RULE_PATTERN = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE_PATTERN = re.compile(r" {0,3}(?:(=+)|-+)[ \t]*$")
_QUOTE_PATTERN = re.compile(r" {0,3}> ?")
_LEADING_TAB_PATTERN = re.compile(r"[ \t>*+\-0-9.)]*\t")
_DELIMITERS_PATTERN = re.compile(r" {0,3}(?:[|:]|-[-|:])[-|: \t]*$")
_BAR_PATTERN = re.compile(r"(?<!\\)\|")
_COLUMN_PATTERN = re.compile(r":?-+:?")
CODE_INDENT = 4  # spaces that make a line code


class ListItem(Struct, frozen=True):
    """The mark of a list item at the start of a line.

    `offset` is the indent of the item's content. `bare` says that no text follows the mark.
    """

    sign: str
    offset: int
    bare: bool

    @property
    def number(self) -> int | None:
        """The number of the item in an ordered list; None in a bullet list."""
        return int(self.sign[:-1]) if len(self.sign) > 1 else None


class Fence(Struct, frozen=True):
    mark: str  # the backquotes or tildes that open the code
    indent: int  # the spaces before them

    def ends(self, line: str) -> bool:
        """Whether the line closes the code: it is the same mark, or a longer one, and nothing
        else.
        """
        text = line.strip(" \t")
        if indent_width(line) >= CODE_INDENT or len(text) < len(self.mark):
            return False
        return text == self.mark[0] * len(text)


def expand_indent(line: str) -> str:
    """Return the line with the tabs before its text expanded, also after marks of containers."""
    match = _LEADING_TAB_PATTERN.match(line)
    return match[0].expandtabs(4) + line[match.end() :] if match else line


def indent_width(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def is_blank(line: str) -> bool:
    return not line.strip(" \t")


def quote_mark_length(line: str) -> int:
    """Return the length of the quote mark at the start of the line; 0 if it has none."""
    match = _QUOTE_PATTERN.match(line)
    return match.end() if match else 0


def parse_item(line: str) -> ListItem | None:
    """Return the mark of a list item at the start of the line, or None."""
    match = _ITEM_PATTERN.match(line)
    if match is None or _RULE_PATTERN.match(line):
        return None
    rest = line[match.end() :].expandtabs(4)
    space_count, bare = indent_width(rest), is_blank(rest)
    if bare or space_count > CODE_INDENT:
        # If no text or code follows, only one space after the mark belongs to the item.
        space_count = 1
    return ListItem(match[1], match.end() + space_count, bare)


def parse_fence(line: str) -> Fence | None:
    match = _FENCE_PATTERN.match(line)
    return Fence(match[2], len(match[1])) if match else None


def parse_heading(line: str) -> tuple[int, str] | None:
    """Return the level and the text of a heading; None if the line is not one."""
    match = _HEADING_PATTERN.match(line)
    if match is None:
        return None
    return len(match[1]), _CLOSING_PATTERN.sub("", match[2].strip(" \t"))


def is_rule(line: str) -> bool:
    return _RULE_PATTERN.match(line) is not None


def underline_level(line: str) -> int:
    """Return the level of the heading whose underline the line is; 0 if it is not an underline."""
    match = _UNDERLINE_PATTERN.match(line)
    if match is None:
        return 0
    return 1 if match[1] else 2  # "===" or "---"


def begins_table(head: str, line: str) -> bool:
    """Whether `head` and `line` are the first two lines of a table: header and delimiter row."""
    if "|" not in head or not _DELIMITERS_PATTERN.match(line):
        return False
    head_cells, delimiters = split_row(head), split_row(line)
    if not head_cells or len(head_cells) != len(delimiters):
        return False
    return all(map(_COLUMN_PATTERN.fullmatch, delimiters))


def split_row(line: str) -> list[str]:
    """Return the cells of a table row. The bars at its ends are optional."""
    parts = [cell.strip(" \t") for cell in _BAR_PATTERN.split(line.strip(" \t"))]
    if parts and not parts[0]:
        del parts[0]
    if parts and not parts[-1]:
        del parts[-1]
    return [cell.replace("\\|", "|") for cell in parts]


def ends_paragraph(line: str) -> bool:
    """Whether the line ends a paragraph: it is a heading, a rule or the start of a fence."""
    return bool(parse_heading(line) or is_rule(line) or parse_fence(line))
