"""An immutable sequence (`Log`) and an immutable text (`Growing`) to which appending is
cheap.

Folding ten thousand events into a view must not copy ten thousand messages each time, nor a
response for each of its deltas. A `Log` and the log that it extends share one list, and each
knows how many items of the list it has. A log that is extended a second time is copied.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")


class Log(Sequence[T], Generic[T]):
    __slots__ = ("_items", "_length")

    def __init__(self, items: Sequence[T] = ()) -> None:
        self._items, self._length = list(items), len(items)

    def plus(self, item: T) -> "Log[T]":
        """Return a log with one more item.

        It shares the list of this log, unless another log that extends this one does so
        already.
        """
        own_items = self._items
        if len(own_items) != self._length:  # another log was extended from this one
            own_items = own_items[: self._length]
        own_items.append(item)
        longer = cast("Log[T]", object.__new__(Log))
        longer._items, longer._length = own_items, self._length + 1
        return longer

    @classmethod
    def sharing(cls, items: list[T], length: int) -> "Log[T]":
        """Return a log of the first `length` items. The log shares the list `items` with longer
        logs.
        """
        log = cls()
        log._items, log._length = items, length
        return log

    @property
    def shared_items(self) -> list[T]:
        """The list that this log shares with the logs that extend it. Do not change the
        list.
        """
        return self._items

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[: self._length])

    def __reversed__(self) -> Iterator[T]:
        return map(self._items.__getitem__, range(self._length - 1, -1, -1))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            # This does not copy the whole list, so that reading the last items is cheap.
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._items[start:stop])
            return tuple(self._items[: self._length][index])
        # `range` counts a negative index from the end, and raises the `IndexError`.
        position = range(self._length)[index]
        return self._items[position]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        return tuple(self) == tuple(cast("Log[object]", other))

    __hash__ = None  # type: ignore[assignment]


class Growing:
    """A text that grows by pieces. Two objects are equal if their whole texts are equal."""

    __slots__ = ("_length", "_pieces")

    def __init__(self, text: str = "") -> None:
        self._pieces = Log[str]((text,) if text else ())
        self._length = len(text)

    def plus(self, piece: str) -> "Growing":
        """Return the text with one more piece at its end. This text does not change."""
        longer = Growing()
        longer._pieces = self._pieces.plus(piece)
        longer._length = self._length + len(piece)
        return longer

    def after(self, length: int) -> str:
        """Return the text after the first `length` characters. Earlier pieces are not read."""
        chars_left = self._length - length
        newest_first = list[str]()
        for index in reversed(range(len(self._pieces))):
            if chars_left <= 0:
                break
            piece = self._pieces[index]
            newest_first.append(piece[-chars_left:])  # the whole piece, if it is not longer
            chars_left -= len(piece)
        return "".join(reversed(newest_first))

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
