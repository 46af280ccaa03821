"""Large variables are kept apart, each as a part that is named by what is in it.

One that has not changed since is known by the hash that Python keeps of a text: it is not
even looked at again. What is no text, and holds more than texts, is made into bytes each
time, and known by those.
"""

from typing import Any, Literal, NamedTuple, TypeAlias, cast

LARGE = 256 * 1024  # bytes
_WORTH = LARGE // 4  # characters: fewer can be no large part

Form: TypeAlias = Literal["pickle", "json"]
Bytes: TypeAlias = bytes | bytearray
Print: TypeAlias = tuple[object, ...]


class Part(NamedTuple):
    name: str  # the sha256 of its bytes
    form: Form
    size: int  # what counts of it: nothing, where it was handed in


class Parts:
    def __init__(self) -> None:
        self._by_print: dict[Print, Part] = {}
        self.given: dict[str, Bytes] = {}  # for variables that are about to be restored

    def remember(self, value: object, part: Part) -> None:
        if seen := _print(value):
            self._by_print[seen] = part

    def of(self, value: object) -> Part | None:
        """The part that holds just this, as far as that can be said at once."""
        seen = _print(value)
        return self._by_print.get(seen) if seen else None

    def forget_but(self, names: frozenset[str]) -> None:
        kept = {seen: part for seen, part in self._by_print.items() if part.name in names}
        self._by_print = kept


def _print(value: object) -> Print:
    """Tells a value of texts from any other; () where that takes more than a look.

    It holds nothing of the value, which could else never go away.
    """
    kind = type(value)
    if kind is str or kind is bytes:
        text = cast("str", value)
        return (kind, len(text), hash(text)) if len(text) >= _WORTH else ()
    try:
        if kind is list or kind is tuple:
            found = _texts(cast("list[Any]", value))
            return (kind, *found) if found else ()
        if kind is dict:
            names = tuple(cast("dict[Any, Any]", value))
            found = _texts(cast("dict[Any, Any]", value).values())
            texts = {str}.issuperset(map(type, names))
            return (kind, hash(names), *found) if found and texts else ()
    except RuntimeError:  # a thread of the code is at it
        pass
    return ()


def _texts(many: Any) -> Print:
    items = tuple(many)
    kinds = set(map(type, items))
    if kinds not in ({str}, {bytes}) or sum(map(len, items)) < _WORTH:
        return ()
    return (*kinds, len(items), hash(items))
