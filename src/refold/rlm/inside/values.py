"""Values of code as JSON and back. What JSON cannot say is refused, with its place."""

import math
from collections.abc import Callable, Mapping
from json import JSONEncoder
from typing import Any, cast

_DEEPEST = 100


class Failed:
    """What stands in a list of results where one failed. It is false in a condition."""

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
        """Raises `TypeError` with the place in the value that JSON has no word for."""
        return self._encode(plain(value, place))

    def from_json(self, said: object) -> object:
        """Of what was decoded without regard to failed slots."""
        return _with_failed(said)


def plain(value: Any, place: str = "value", depth: int = 0) -> object:
    """The same in words of JSON: sets and tuples are lists, dates are text."""
    match value:
        case None | bool():
            return value
        case str():
            return clean(value)
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
                _key(key, place): plain(one, f"{place}[{key!r:.40}]", depth)
                for key, one in found.items()
            }
        case list() | tuple():
            many = enumerate(cast("list[object]", value))
            return [plain(one, f"{place}[{n}]", depth) for n, one in many]
        case set() | frozenset():
            return [plain(one, f"{place}[…]", depth) for one in _in_order(value)]
        case Failed():
            return {"__failed__": clean(str(value.reason))}
        case _:
            return plain(_other(value, place), place, depth)


def clean(text: str) -> str:
    """Without halves of characters, which nobody can write down."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def _other(value: Any, place: str) -> object:
    """What other people's types call themselves in simpler words."""
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
            return clean(key)
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
