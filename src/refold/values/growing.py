"""A text that comes in pieces and is cheap to lengthen.

An answer of a hundred thousand letters must not be copied for each of its pieces. Who has
shown some of it asks for the rest. Two are equal if they say the same, however it came.
"""

from refold.values.log import Log


class Growing:
    __slots__ = ("_length", "_pieces")

    def __init__(self, text: str = "") -> None:
        self._pieces = Log[str]((text,) if text else ())
        self._length = len(text)

    def plus(self, piece: str) -> "Growing":
        longer = Growing()
        longer._pieces, longer._length = self._pieces.plus(piece), self._length + len(piece)
        return longer

    def after(self, length: int) -> str:
        """What comes after the first `length` letters, without a look at those."""
        left, last = self._length - length, list[str]()
        for at in range(len(self._pieces) - 1, -1, -1):
            if left <= 0:
                break
            piece = self._pieces[at]
            last.append(piece[-left:])
            left -= len(piece)
        return "".join(reversed(last))

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        return "".join(self._pieces)

    def __repr__(self) -> str:
        return f"Growing({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Growing):
            return NotImplemented
        return self._length == other._length and str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]
