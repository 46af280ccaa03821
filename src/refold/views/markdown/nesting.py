"""The quotes and items of lists that a line of Markdown stands in, and their signs.

What the line says inside of them is the business of `blocks`.
"""

from collections.abc import Sequence
from itertools import takewhile

from refold.views.markdown.leaves import Around
from refold.views.markdown.opening import Item, indent, is_blank, quote


class Nesting:
    """What is open at the moment, from the outermost on."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._before: list[_Open] = []  # what was around the last leaf
        self._lists: dict[int, Item] = {}  # the last item at each depth

    def __len__(self) -> int:
        return len(self._open)

    def walk(self, rest: str) -> tuple[int, str]:
        """In how much of what is open the line goes on, and what it says there."""
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
        """Words stand in the first so many."""
        for each in self._open[:kept]:
            each.bare = False

    def open(self, found: Item | None) -> None:
        """Begin a quote, or an item; one of a list under way gets the next number."""
        depth = len(self._open)
        self._forget(depth + 1)
        before = self._lists.pop(depth, None)
        sign = ""
        if found is not None:
            sign, number = found.sign, before.number if before else None
            if before and number is not None and before.sign[-1] == sign[-1]:
                sign = f"{number + 1}{sign[-1]}"
            self._lists[depth] = Item(sign, found.offset, found.bare)
        self._open.append(_Open(found, sign))

    def leave(self) -> None:
        """End the innermost."""
        self._open.pop()

    @property
    def unsaid(self) -> bool:
        """Is the innermost an item whose sign is not printed yet?"""
        return bool(self._open) and self._open[-1].begins

    def place(self) -> tuple[tuple[Around, ...], int]:
        """Where a leaf stands, and in how much of that the last one stood too."""
        self._forget(len(self._open))
        around = tuple(Around(each.sign, each.begins) for each in self._open)
        shared = _shared(self._before, self._open)
        for each in self._open:
            each.begins = False
        self._before = list(self._open)
        return around, shared

    def _forget(self, depth: int) -> None:
        """Something else stands there: the lists from that depth on are over."""
        for at in [at for at in self._lists if at >= depth]:
            del self._lists[at]


class _Open:
    def __init__(self, item: Item | None, sign: str) -> None:
        self.item, self.sign = item, sign
        self.bare = item is not None and item.bare  # nothing stands in it yet
        self.begins = item is not None


def _shared(before: Sequence[_Open], now: Sequence[_Open]) -> int:
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
