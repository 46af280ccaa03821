"""Values of the code as JSON and back, and as a short preview for the model.

A value that JSON cannot express is refused, with its place. A preview is bounded in time as
well as in length: no more of a value is read than is shown.
"""

import math
from collections.abc import Callable, Mapping
from itertools import islice
from json import JSONEncoder
from typing import Any, cast

_DEEPEST = 100
_SMALL = 2_000  # characters that are shown whole
_ITEMS = 20
_HEAD = 600  # characters of a text that is not shown whole
_SHOWN_DEPTH = 4


class Failed:
    """Stands in a list of results for a call that failed. It is false in a condition."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Failed({self.reason!r})"


class Values:
    def __init__(self) -> None:
        # Code may change what the module holds later on.
        self._encode = JSONEncoder(
            allow_nan=False, check_circular=False, ensure_ascii=False
        ).encode

    def to_json(self, value: object, place: str = "value") -> str:
        """Raises `TypeError` with the place of a value that JSON cannot express."""
        return self._encode(to_plain(value, place))

    def from_json(self, said: object) -> object:
        """A decoded JSON value, with `Failed` for each failed slot."""
        return _with_failed(said)


def to_plain(value: Any, place: str = "value", depth: int = 0) -> object:
    """The value in JSON types: sets and tuples become lists, dates become text."""
    match value:
        case None | bool():
            return value
        case str():
            return without_surrogates(value)
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise TypeError(f"{place} is {value}: JSON has no such number. Use None.")
            return float(value)
        case _ if depth > _DEEPEST:
            raise TypeError(f"{place} is nested deeper than {_DEEPEST}, or within itself.")
        case _:
            return _many(value, place, depth + 1)


def _many(value: Any, place: str, depth: int) -> object:
    match value:
        case dict():
            found = cast("dict[object, object]", value)
            return {
                _key(key, place): to_plain(one, f"{place}[{key!r:.40}]", depth)
                for key, one in found.items()
            }
        case list() | tuple():
            many = enumerate(cast("list[object]", value))
            return [to_plain(one, f"{place}[{n}]", depth) for n, one in many]
        case set() | frozenset():
            return [to_plain(one, f"{place}[…]", depth) for one in _in_order(value)]
        case Failed():
            return {"__failed__": without_surrogates(str(value.reason))}
        case _:
            return to_plain(_other(value, place), place, depth)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def _other(value: Any, place: str) -> object:
    """Convert well-known types of the standard library and of packages to JSON types."""
    kind = cast("Any", type(value))
    home = str(kind.__module__).partition(".")[0]
    ways: tuple[tuple[bool, Callable[[], object]], ...] = (
        (home == "datetime" and hasattr(kind, "isoformat"), lambda: value.isoformat()),
        (home in _AS_TEXT, lambda: str(value)),
        (hasattr(kind, "__members__"), lambda: value.value),
        (hasattr(kind, "__dataclass_fields__"), lambda: _fields(value)),
        (isinstance(value, Mapping), lambda: dict(value)),
        (hasattr(kind, "tolist"), lambda: value.tolist()),
        (hasattr(kind, "to_dict"), lambda: value.to_dict()),
        (hasattr(kind, "model_dump"), lambda: value.model_dump(mode="json")),
        (kind.__name__ in _VIEWS or home == "collections", lambda: list(value)),
    )
    for fits, way in ways:
        if fits:
            return way()
    raise TypeError(
        f"{place} is of type {kind.__name__}, which JSON has no word for. "
        "Use text, numbers, True, False, None, lists and dicts."
    )


_AS_TEXT = frozenset({"decimal", "pathlib", "uuid", "fractions"})
_VIEWS = frozenset({"dict_keys", "dict_values", "dict_items", "range"})


def _fields(value: Any) -> dict[str, object]:
    names = cast("dict[str, object]", type(value).__dataclass_fields__)
    return {name: getattr(value, name) for name in names}


def _key(key: object, place: str) -> str:
    match key:
        case str():
            return without_surrogates(key)
        case None | bool():
            return {None: "null", True: "true", False: "false"}[key]
        case int() | float():
            return str(key)
        case _ if hasattr(key, "isoformat"):
            return str(key)
        case _:
            raise TypeError(
                f"{place} has a key of type {type(key).__name__}: keys of JSON are text."
            )


def _in_order(many: Any) -> list[object]:
    try:
        return sorted(many)
    except TypeError:
        return list(many)


def _marked(found: dict[str, Any]) -> object:
    if found.keys() == {"__failed__"}:
        return Failed(str(found["__failed__"]))
    return found


def _with_failed(said: Any) -> object:
    if isinstance(said, list):
        return [_with_failed(one) for one in cast("list[Any]", said)]
    if isinstance(said, dict):
        found = cast("dict[str, Any]", said)
        return _marked({name: _with_failed(one) for name, one in found.items()})
    return said


class Listing(str):
    """Text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def preview(value: object, most: int) -> str:
    """A preview of about `most` characters."""
    if isinstance(value, Listing):
        return value[:most]
    whole = shown(value, min(_SMALL, most))
    about = describe(value)
    small = len(whole) <= min(_SMALL, most) and "…" not in whole
    if small or not about:
        return whole[:most]
    return f"{about}: {whole[: most - len(about)]}"


def describe(value: object) -> str:
    """Type and size, or only the type where there is no size."""
    kind = type(value).__name__
    size = size_of(value)
    return f"{kind}, {size}" if size else kind


def size_of(value: Any) -> str:
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
        if depth >= _SHOWN_DEPTH or (depth and self._left <= 0):
            return f"<{describe(value)}…>"
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
