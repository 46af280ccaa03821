"""Lines of text with styles that have names, and no colours.

A view says what a piece of text is; each screen decides what that looks like.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

Style: TypeAlias = Literal[
    "plain", "dim", "strong", "heading", "code", "accent", "person",
    "good", "bad", "warn", "added", "gone", "hunk",
]  # fmt: skip
Piece: TypeAlias = tuple[Style, str]
Line: TypeAlias = tuple[Piece, ...]


def line(text: str, style: Style = "plain") -> Line:
    return ((style, text),)


def bare(lines: Iterable[Line]) -> str:
    """The text alone."""
    return "\n".join("".join(text for _, text in found) for found in lines)
