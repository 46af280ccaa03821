"""What a Markdown text is made of, once a block of it is finished. Values only.

`blocks` makes them, `prose` prints them.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["words", "heading", "rule", "table", "fence", "code", "closed"]


class Container(Struct, frozen=True):
    """A quote, or an item of a list, that a leaf stands in.

    `sign` is the mark of the item, as "-" or "12."; "" for a quote. `begins`: this is
    the first leaf of the item, so the sign is to be printed.
    """

    sign: str = ""
    begins: bool = False


class Leaf(Struct, frozen=True):
    """`lines` are as they were written, without the marks of what is around them.

    "fence" is the line that opens one, each line in it is "code", and "closed" the line
    that ends it, "" where none did. Code that is only indented has no fence. `level` is
    that of a heading. `gap`: an empty line stands before it; that line is inside of so
    many of the things around, -1 for none.
    """

    kind: Kind
    lines: tuple[str, ...]
    around: tuple[Container, ...] = ()
    level: int = 0
    gap: int = -1
    headed: bool = True  # a table: its first line is the head, its second the rule below
