"""Lines of text with named styles. A style is not yet a colour.

A view names the style of each piece of text; each screen decides how it looks. The style of a
link is a `Link`; a screen without links draws it in the style "link". Only the full screen uses
`ImageRow`.
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
    """The style of text that links to `url`.

    `url` is safe to open: it is printable ASCII, and leads to a page, a file or a mail address.
    """

    url: str


class ImageRow(Struct, frozen=True):
    """The style of blanks over which one row of an image is drawn.

    The image has `rows` rows of `columns` cells; `row` is the index of this row. `image` is the
    name of the blob with its bytes.
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
    """Return the pieces with neighbouring pieces of the same style joined."""
    result: list[Piece] = []
    for style, text in pieces:
        if result and result[-1][0] == style:
            text = result.pop()[1] + text
        result.append((style, text))
    return result


def plain_text(lines: Iterable[Line]) -> str:
    """Return the text of the lines without styles."""
    return "\n".join("".join(text for _, text in pieces) for pieces in lines)
