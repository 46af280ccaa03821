"""Writes the schema of a tool so that every provider accepts it.

JSON Schema allows more than providers do, and some refuse a whole request for it:
alternatives and references at the top of the arguments, and lists without an item type.
Alternatives become one object with the properties of all, and the description keeps them as
they were; the server still checks the arguments. `as_tools` refuses what cannot be sent at
all. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from refold.errors import BadInput

_UNUSED_KEYS = frozenset(("$schema", "title"))
_ALTERNATIVE_KEYS = ("anyOf", "oneOf")
# Keys that no provider accepts at the top. `$ref` is replaced by its target.
_NOT_AT_THE_TOP = frozenset(
    (
        *_ALTERNATIVE_KEYS,
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "enum",
        "const",
        "dependentSchemas",
        "$ref",
    )
)
_MAP_KEYS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
)
_LIST_KEYS = frozenset((*_ALTERNATIVE_KEYS, "allOf", "prefixItems", "items"))
_PART_KEYS = frozenset(
    (
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
    )
)
_MAX_ALTERNATIVES_CHARS = 1_000  # of the alternatives in the description
_MOST_LEVELS = 8  # of alternatives in alternatives
_MOST_PARTS = 200  # that are joined: references can name one another endlessly

Schema = Mapping[str, Any]


def portable(schema: Schema) -> dict[str, Any]:
    """Return the schema of an object. Raises `BadInput` for invalid properties.

    Also for too many alternatives and references.
    """
    kept = {key: value for key, value in schema.items() if key not in _UNUSED_KEYS}
    special = {key: kept.pop(key) for key in tuple(kept) if key in _NOT_AT_THE_TOP}
    if special:
        kept |= _merge(schema, schema, _MOST_LEVELS, iter(range(_MOST_PARTS)))
        words = (
            f"The arguments also have to match {json.dumps(special, ensure_ascii=False)}"
        )
        if len(words) <= _MAX_ALTERNATIVES_CHARS:
            kept["description"] = "\n".join(filter(None, (kept.get("description"), words)))
    kept["properties"] = _properties(kept)
    if "required" in kept and not _is_list_of_names(kept["required"]):
        del kept["required"]
    return _with_items({"properties": {}, **kept, "type": "object"})


def _properties(schema: Schema) -> dict[str, Any]:
    """Return the properties. Raises `BadInput` for invalid ones."""
    properties: object = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise BadInput("the properties of its schema are not an object")
    found = dict[str, object]()
    for name, part in cast("dict[str, object]", properties).items():
        if part is not False:
            found[name] = dict[str, object]() if part is True else part
    if bad := next(
        (name for name, part in found.items() if not isinstance(part, dict)), None
    ):
        raise BadInput(
            f"the property {bad[:100]!r} of its schema is not described by an object"
        )
    return found


def _merge(part: Schema, whole: Schema, levels: int, left: Iterator[int]) -> dict[str, Any]:
    """Merge `properties` and `required` of an object with its alternatives.

    `left` counts the parts that may still be joined.
    """
    if next(left, None) is None:
        raise BadInput(
            f"its schema joins more than {_MOST_PARTS} alternatives and references"
        )
    properties = dict(_properties(part))
    required = list(part["required"]) if _is_list_of_names(part.get("required")) else []
    below = [(each, True) for each in _parts(part.get("allOf"))]
    if isinstance(reference := part.get("$ref"), str):
        below.append((_target(reference, whole), True))
    for key in _ALTERNATIVE_KEYS:
        below += [(each, False) for each in _parts(part.get(key))]
    needed = list[set[str]]()
    for each, holds in below if levels else ():
        found = _merge(each, whole, levels - 1, left)
        for name, description in found["properties"].items():
            there = properties.setdefault(name, description)
            if there != description:
                properties[name] = {"anyOf": [there, description]}
        if holds:
            required += found.get("required", ())
        else:
            needed.append(set(found.get("required", ())))
    if needed:
        required += sorted(needed[0].intersection(*needed[1:]))
    names = list(dict.fromkeys(required))
    return {"properties": properties} | ({"required": names} if names else {})


def _parts(value: object) -> list[Schema]:
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in found if isinstance(each, dict)]


def _target(reference: str, whole: Schema) -> Schema:
    """Return the target of a reference into the same schema."""
    found: object = whole
    for name in unquote(reference).split("/")[1:]:
        step = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal():
            found = dict(enumerate(cast("list[object]", found))).get(int(step))
        else:
            found = (
                cast("dict[str, object]", found).get(step)
                if isinstance(found, dict)
                else None
            )
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) for each in cast("list[object]", value)
    )


def _with_items(part: Any) -> Any:
    """Add `items` to every list: providers need its item type."""
    if not isinstance(part, dict):
        return part
    found = dict[str, Any]()
    for key, value in cast("dict[str, Any]", part).items():
        if key in _MAP_KEYS and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            found[key] = {name: _with_items(below) for name, below in named.items()}
        elif key in _LIST_KEYS and isinstance(value, list):
            found[key] = [_with_items(below) for below in cast("list[Any]", value)]
        else:
            found[key] = _with_items(value) if key in _PART_KEYS else value
    kinds = found.get("type")
    if "items" not in found and (
        kinds == "array"
        or (isinstance(kinds, list) and "array" in cast("list[object]", kinds))
    ):
        found["items"] = {}
    return found
