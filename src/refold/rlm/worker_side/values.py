"""Converts values of the code to JSON and back, and to a short preview for the model.

A value that JSON cannot express is refused, with its position. No more of a value is read than
its preview shows, because a preview must not take long.
"""

import math
from collections.abc import Callable, Mapping
from itertools import islice
from json import JSONEncoder
from typing import Any, cast

_MAX_DEPTH = 100
_MAX_WHOLE_CHARS = 2_000  # the length up to which text is shown completely
_MAX_ITEMS = 20
_HEAD_CHARS = 600  # the part of a longer text that is shown
_MAX_SHOWN_DEPTH = 4


class Failed:
    """Stands for the result of a failed call in a list. It is false in a condition."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Failed({self.reason!r})"


class Values:
    """Converts values to JSON and back."""

    def __init__(self) -> None:
        # Code may later change what the module contains.
        self._encode = JSONEncoder(
            allow_nan=False, check_circular=False, ensure_ascii=False
        ).encode

    def to_json(self, value: object, place: str = "value") -> str:
        """Convert a value to JSON.

        Raises `TypeError` with the position of an item that JSON cannot express. `place` names
        the position of the value itself.
        """
        return self._encode(to_plain(value, place))

    def from_json(self, value: object) -> object:
        """Decode a JSON value, with a `Failed` object for each failed result."""
        return _with_failed(value)


def to_plain(value: Any, place: str = "value", depth: int = 0) -> object:
    """Convert a value to JSON types: sets and tuples become lists, dates become text.

    `place` names the position of the value. Raises `TypeError` if it cannot be converted.
    """
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
        case _ if depth > _MAX_DEPTH:
            raise TypeError(
                f"{place} is nested deeper than {_MAX_DEPTH}, or within itself."
            )
        case _:
            return _collection_to_plain(value, place, depth + 1)


def _collection_to_plain(value: Any, place: str, depth: int) -> object:
    """Convert a collection, or a value of a known type, to JSON types."""
    match value:
        case dict():
            fields = cast("dict[object, object]", value)
            return {
                _key_text(key, place): to_plain(item, f"{place}[{key!r:.40}]", depth)
                for key, item in fields.items()
            }
        case list() | tuple():
            items = enumerate(cast("list[object]", value))
            return [to_plain(item, f"{place}[{n}]", depth) for n, item in items]
        case set() | frozenset():
            return [to_plain(item, f"{place}[…]", depth) for item in _sort_items(value)]
        case Failed():
            return {"__failed__": without_surrogates(str(value.reason))}
        case _:
            return to_plain(_known_type_to_plain(value, place), place, depth)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates in a text, because they cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def _known_type_to_plain(value: Any, place: str) -> object:
    """Convert a value of a well-known type of the standard library or of a package.

    Raises `TypeError` for a value of any other type.
    """
    kind = cast("Any", type(value))
    module = str(kind.__module__).partition(".")[0]
    conversions: tuple[tuple[bool, Callable[[], object]], ...] = (
        (module == "datetime" and hasattr(kind, "isoformat"), lambda: value.isoformat()),
        (module in _TEXT_TYPE_MODULES, lambda: str(value)),
        (hasattr(kind, "__members__"), lambda: value.value),
        (hasattr(kind, "__dataclass_fields__"), lambda: _fields(value)),
        (isinstance(value, Mapping), lambda: dict(value)),
        (hasattr(kind, "tolist"), lambda: value.tolist()),
        (hasattr(kind, "to_dict"), lambda: value.to_dict()),
        (hasattr(kind, "model_dump"), lambda: value.model_dump(mode="json")),
        (kind.__name__ in _LIST_TYPES or module == "collections", lambda: list(value)),
    )
    for applies, convert in conversions:
        if applies:
            return convert()
    raise TypeError(
        f"{place} is of type {kind.__name__}, which JSON has no word for. "
        "Use text, numbers, True, False, None, lists and dicts."
    )


_TEXT_TYPE_MODULES = frozenset({"decimal", "pathlib", "uuid", "fractions"})
_LIST_TYPES = frozenset({"dict_keys", "dict_values", "dict_items", "range"})


def _fields(value: Any) -> dict[str, object]:
    names = cast("dict[str, object]", type(value).__dataclass_fields__)
    return {name: getattr(value, name) for name in names}


def _key_text(key: object, place: str) -> str:
    """Return the key of a dictionary as text. Raises `TypeError` if that is impossible."""
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


def _sort_items(items: Any) -> list[object]:
    """Return the items sorted, or unsorted if they cannot be compared."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _restore_failed(fields: dict[str, Any]) -> object:
    """Return a `Failed` if `fields` describe a failed result, otherwise `fields` unchanged."""
    if fields.keys() == {"__failed__"}:
        return Failed(str(fields["__failed__"]))
    return fields


def _with_failed(value: Any) -> object:
    """Return a value of JSON with `Failed` for each failed result, at any depth."""
    if isinstance(value, list):
        return [_with_failed(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return _restore_failed({name: _with_failed(item) for name, item in fields.items()})
    return value


class Listing(str):
    """A text that is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def preview(value: object, max_chars: int) -> str:
    """Return the value as text, or its type, its size and its beginning if that is too long.

    The text has at most `max_chars` characters.
    """
    if isinstance(value, Listing):
        return value[:max_chars]
    max_whole_chars = min(_MAX_WHOLE_CHARS, max_chars)
    text = show_value(value, max_whole_chars)
    is_complete = len(text) <= max_whole_chars and "…" not in text
    about = describe(value)
    if is_complete or not about:
        return text[:max_chars]
    return f"{about}: {text[: max_chars - len(about)]}"


def describe(value: object) -> str:
    """Return the type of a value, and its size if it has one, as text."""
    kind = type(value).__name__
    size = size_of(value)
    return f"{kind}, {size}" if size else kind


def size_of(value: Any) -> str:
    """Return the size of a value as text, or "" if a value of its type has no size.

    An array has a size like "2×3".
    """
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


def show_value(value: object, max_chars: int) -> str:
    return _ValueFormatter(max_chars).show(value, depth=0)


class _ValueFormatter:
    """Shows one value in at most `max_chars` characters."""

    def __init__(self, max_chars: int) -> None:
        self._left = max_chars

    def show(self, value: Any, depth: int) -> str:
        """Return a value as text. `depth` is the number of collections around it."""
        kind = cast("Any", type(value))
        if kind in (str, bytes, bytearray):
            return self._text(value)
        begin, end = _brackets(value)
        is_collection = bool(begin)
        is_built_in = kind in _BRACKETS_BY_TYPE
        if not is_collection:
            return self._cut(_repr_of(value))
        # Small values of types derived from list, dict and so on are shown with their `repr`.
        if not is_built_in and len(value) <= _MAX_ITEMS:
            return self._cut(_repr_of(value))
        if is_built_in and not value:
            return repr(value)
        is_inside = depth > 0  # the outermost collection is shown even without space
        if depth >= _MAX_SHOWN_DEPTH or (is_inside and self._left <= 0):
            return f"<{describe(value)}…>"
        parts = self._parts(value, depth + 1)
        if len(parts) < len(value):
            parts.append("…")
        # As Python writes it: (1,)
        comma = "," if kind is tuple and len(value) == 1 else ""
        return begin + ", ".join(parts) + comma + end

    def _text(self, value: Any) -> str:
        """Return the `repr` of a text or bytes; if it is long, of its beginning and end."""
        chars_left = max(40, self._left)
        if len(value) <= chars_left:
            return self._cut(repr(value))
        chars_left = min(chars_left, _HEAD_CHARS)
        self._left -= chars_left
        head_chars = chars_left * 3 // 4
        tail_chars = chars_left - head_chars
        return f"{value[:head_chars]!r}…{value[-tail_chars:]!r}"

    def _parts(self, value: Any, depth: int) -> list[str]:
        """Return the first items of a collection as texts, as many as fit."""
        parts = list[str]()
        is_dict = isinstance(value, dict)
        items: Any = cast("dict[Any, Any]", value).items() if is_dict else value
        first_items: list[Any] = list(islice(items, _MAX_ITEMS))
        for item in first_items:
            if parts and self._left <= 0:
                break
            texts = [self.show(part, depth) for part in (item if is_dict else (item,))]
            parts.append(": ".join(texts))
            self._left -= 2  # the separator
        return parts

    def _cut(self, text: str) -> str:
        chars_left = max(40, self._left)
        self._left -= len(text)
        return text if len(text) <= chars_left else text[:chars_left] + "…"


_BRACKETS_BY_TYPE: Mapping[type, str] = {
    list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}",
}  # fmt: skip


def _brackets(value: object) -> tuple[str, str]:
    """Return the opening and the closing bracket of a collection; ("", "") for other values."""
    for kind, (begin, end) in _BRACKETS_BY_TYPE.items():
        if isinstance(value, kind):
            return begin, end
    return "", ""


def _repr_of(value: object) -> str:
    """Return the `repr` of a value, or a text that says why it has none."""
    # The code may define this function, so it may do and return anything.
    to_repr: Callable[[object], object] = repr
    try:
        return str(to_repr(value))
    except Exception as error:
        return f"<{type(value).__name__}: its repr fails with {type(error).__name__}>"
