"""Lines of text with styles that have names, and no colours.

A view says what a piece of text is; each screen decides what that looks like. Words that
lead somewhere have a `Link` for a style, which a screen that knows none shows as "link".
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

Style: TypeAlias = Literal[
    "plain", "dim", "strong", "emphasis", "title", "heading", "subheading", "link", "accent",
    "person",
    "good", "bad", "warn", "added", "gone", "hunk", "added_word", "gone_word",
    "code", "keyword", "string", "number", "comment", "name", "builtin",
]  # fmt: skip


class Link(Struct, frozen=True):
    """`url` is harmless: printable ASCII, of a kind that opens a page, a file or a letter."""

    url: str


Piece: TypeAlias = tuple[Style | Link, str]
Line: TypeAlias = tuple[Piece, ...]


def line(text: str, style: Style = "plain") -> Line:
    return ((style, text),)


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one style as one."""
    found: list[Piece] = []
    for style, text in pieces:
        if found and found[-1][0] == style:
            text = found.pop()[1] + text
        found.append((style, text))
    return found


def bare(lines: Iterable[Line]) -> str:
    """The text alone."""
    return "\n".join("".join(text for _, text in found) for found in lines)
