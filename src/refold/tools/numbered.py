"""A piece of a text as numbered lines, no longer than a model can take at once."""

from collections.abc import Iterator

from msgspec import Struct

from refold.values.clean import clean

LONGEST_LINE = 2000  # characters
MOST = 28_000  # characters: below the length at which the seam cuts


class Piece(Struct, frozen=True):
    text: str
    first: int
    last: int
    total: int

    @property
    def where(self) -> str:
        """Which lines these are, for a person."""
        if self.last < self.first:
            return f"there are only {self.total:,} lines"
        if self.first == 1 and self.last == self.total:
            return f"{self.total:,} line{'' if self.total == 1 else 's'}"
        return f"lines {self.first}-{self.last} of {self.total:,}"

    @property
    def extent(self) -> str:
        """The same, and how to go on, for a model."""
        if self.last < self.first or self.last == self.total:
            return self.where
        return f"{self.where}; go on with first={self.last + 1}"


def piece(text: str, first: int, count: int) -> Piece:
    """Lines of `text` (LF alone) from `first`, at most `count`, cut where too long."""
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    shown, length, last = list[str](), 0, first - 1
    for number, line in enumerate(_from(text, first), first):
        row = f"{number}\t{_cut(line)}"
        length += len(row) + 1
        if number >= first + count or (length > MOST and shown):
            break
        shown.append(row)
        last = number
    return Piece("\n".join(shown), first, last, total)


def folded(text: str, width: int = LONGEST_LINE) -> str:
    """`text` with its long lines broken, so that each part can be asked for."""
    if all(len(line) <= width for line in text.split("\n")):
        return text
    return "\n".join(
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(len(line), 1), width)
    )


def _from(text: str, first: int) -> Iterator[str]:
    # Not by splitting it all: a big file must not become a million strings.
    at = 0
    for _ in range(first - 1):
        at = text.find("\n", at) + 1
        if at == 0:
            return
    while at < len(text):
        end = text.find("\n", at)
        yield text[at : end if end >= 0 else len(text)]
        if end < 0:
            return
        at = end + 1


def _cut(line: str) -> str:
    line = clean(line)
    left = len(line) - LONGEST_LINE
    return line if left <= 0 else f"{line[:LONGEST_LINE]} [{left:,} more characters]"
