"""What a model gets to see of a value: its type, its size, and how it begins.

Bounded in time as well as in length: no more of a value is looked at than is shown.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

_SMALL = 2_000  # characters that are shown whole
_ITEMS = 20
_HEAD = 600  # characters of a text that is not shown whole
_DEEPEST = 4


class Listing(str):
    """Text to be shown as it stands."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def observed(value: object, most: int) -> str:
    """No more than `most` characters, and a few words."""
    if isinstance(value, Listing):
        return value[:most]
    whole = shown(value, min(_SMALL, most))
    about = described(value)
    small = len(whole) <= min(_SMALL, most) and "…" not in whole
    if small or not about:
        return whole[:most]
    return f"{about}: {whole[: most - len(about)]}"


def described(value: object) -> str:
    """Its type and size, in a few words; "" for what is no larger than its name."""
    kind = type(value).__name__
    size = sized(value)
    return f"{kind}, {size}" if size else kind


def sized(value: Any) -> str:
    shape = getattr(value, "shape", None) if not isinstance(value, type) else None
    if isinstance(shape, tuple) and all(
        isinstance(n, int) for n in cast("tuple[object]", shape)
    ):
        return "×".join(str(n) for n in cast("tuple[int]", shape))
    if isinstance(value, str):
        return f"{len(value):,} characters"
    if isinstance(value, bytes | bytearray):
        return f"{len(value):,} bytes"
    if isinstance(value, list | tuple | set | frozenset | dict):
        return f"{len(cast('list[object]', value)):,} items"
    return ""


def shown(value: object, most: int) -> str:
    return _Shower(most).show(value, 0)


class _Shower:
    def __init__(self, most: int) -> None:
        self._left = most

    def show(self, value: Any, depth: int) -> str:
        kind = cast("Any", type(value))
        if kind in (str, bytes, bytearray):
            return self._text(value)
        begin, end = _brackets(value)
        # Of kinds that are built on these the whole is shown as they want it, if it is small.
        if not begin or (kind not in _BRACKETS and len(value) <= _ITEMS):
            return self._cut(_represented(value))
        if not value and kind in _BRACKETS:
            return repr(value)
        if depth >= _DEEPEST or (depth and self._left <= 0):
            return f"<{described(value)}…>"
        parts = self._parts(value, depth + 1)
        if len(parts) < len(value):
            parts.append("…")
        last = "," if kind is tuple and len(value) == 1 else ""
        return begin + ", ".join(parts) + last + end

    def _text(self, value: Any) -> str:
        room = max(40, self._left)
        if len(value) <= room:
            return self._cut(repr(value))
        room = min(room, _HEAD)
        self._left -= room
        return f"{value[: room * 3 // 4]!r}…{value[-room // 4 :]!r}"

    def _parts(self, value: Any, depth: int) -> list[str]:
        parts, pairs = list[str](), isinstance(value, dict)
        begins: list[Any] = list(islice(value.items() if pairs else value, _ITEMS))
        for one in begins:
            if parts and self._left <= 0:
                break
            shown = [self.show(each, depth) for each in (one if pairs else (one,))]
            parts.append(": ".join(shown))
            self._left -= 2
        return parts

    def _cut(self, said: str) -> str:
        room = max(40, self._left)
        self._left -= len(said)
        return said if len(said) <= room else said[:room] + "…"


_BRACKETS: Mapping[type, str] = {
    list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}",
}  # fmt: skip


def _brackets(value: object) -> tuple[str, str]:
    for kind, (begin, end) in _BRACKETS.items():
        if isinstance(value, kind):
            return begin, end
    return "", ""


def _represented(value: object) -> str:
    # Code wrote this: it may do anything, and give anything.
    said: Callable[[object], object] = repr
    try:
        return str(said(value))
    except Exception as error:
        return f"<{type(value).__name__}: its repr fails with {type(error).__name__}>"
