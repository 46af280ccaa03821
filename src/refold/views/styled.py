"""Lines of text with named styles, without colours.

A view names the style of a piece of text; each screen decides what it looks like. Text that
links somewhere has a `Link` as its style; a screen without links shows it as "link". Only the
full screen makes and draws an `ImageRow`.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

Style: TypeAlias = Literal[
    "plain", "dim", "strong", "emphasis", "title", "heading", "subheading", "link", "accent",
    "person",
    "good", "bad", "warn", "added", "gone", "hunk", "added_word", "gone_word",
    "code", "keyword", "string", "number", "comment", "name", "builtin",
    "selected", "border",
]  # fmt: skip


class Link(Struct, frozen=True):
    """`url` is safe to open: printable ASCII with a scheme for pages, files or mail."""

    url: str


class ImageRow(Struct, frozen=True):
    """The text is blanks, over which row `row` of the `rows` of an image is drawn.

    `image` names its bytes; all its rows have `columns` cells.
    """

    image: str
    row: int
    rows: int
    columns: int


PieceStyle: TypeAlias = Style | Link | ImageRow
Piece: TypeAlias = tuple[PieceStyle, str]
Line: TypeAlias = tuple[Piece, ...]


def line(text: str, style: Style = "plain") -> Line:
    return ((style, text),)


def join_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbours of the same style."""
    result: list[Piece] = []
    for style, text in pieces:
        if result and result[-1][0] == style:
            text = result.pop()[1] + text
        result.append((style, text))
    return result


def plain_text(lines: Iterable[Line]) -> str:
    """The text without styles."""
    return "\n".join("".join(text for _, text in pieces) for pieces in lines)
