"""Rewrites the schema of a tool so that every model provider accepts it.

JSON Schema allows more than providers do. Some refuse a whole request because the arguments
have alternatives or references at the top, or a list has no item type. So alternatives become
one object with the properties of all, and the description quotes the original ones; the server
still checks the arguments. `as_tools` refuses schemas that cannot be sent at all. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from refold.errors import BadInput

_UNUSED_KEYS = frozenset(("$schema", "title"))
_ALTERNATIVE_KEYS = ("anyOf", "oneOf")
# Keys that no provider accepts at the top. `$ref` is replaced by its target.
_REFUSED_TOP_KEYS = frozenset(
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
_MAX_ALTERNATIVES_CHARS = 1_000  # for the alternatives in the description
_MAX_SHOWN_NAME_CHARS = 100  # in an error message
_MAX_LEVELS = 8  # of nested alternatives
_MAX_PARTS = 200  # that are joined, because references can name each other endlessly

Schema = Mapping[str, Any]


def to_portable(schema: Schema) -> dict[str, Any]:
    """Return the schema of an object in a form that all providers accept.

    Raises `BadInput` for invalid properties, and for too many alternatives and references.
    """
    base = {key: value for key, value in schema.items() if key not in _UNUSED_KEYS}
    if not isinstance(base.get("description", ""), str):
        del base["description"]
    refused = {key: base.pop(key) for key in tuple(base) if key in _REFUSED_TOP_KEYS}
    if refused:
        parts_left = iter(range(_MAX_PARTS))
        base |= _merge(schema, whole=schema, levels=_MAX_LEVELS, parts_left=parts_left)
        words = (
            f"The arguments also have to match {json.dumps(refused, ensure_ascii=False)}"
        )
        if len(words) <= _MAX_ALTERNATIVES_CHARS:
            base["description"] = "\n".join(filter(None, (base.get("description"), words)))
    base["properties"] = _properties(base)
    if "required" in base and not _is_list_of_names(base["required"]):
        del base["required"]
    return _with_items({"properties": {}, **base, "type": "object"})


def _properties(schema: Schema) -> dict[str, Any]:
    """Return the properties of an object schema. Raises `BadInput` for invalid ones."""
    properties: object = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise BadInput("the properties of its schema are not an object")
    result = dict[str, object]()
    for name, part in cast("dict[str, object]", properties).items():
        if part is not False:
            result[name] = dict[str, object]() if part is True else part
    for name, part in result.items():
        if not isinstance(part, dict):
            shown = name[:_MAX_SHOWN_NAME_CHARS]
            raise BadInput(
                f"the property {shown!r} of its schema is not described by an object"
            )
    return result


def _merge(
    part: Schema, whole: Schema, levels: int, parts_left: Iterator[int]
) -> dict[str, Any]:
    """Merge `properties` and `required` of `part` with those of its alternatives.

    References lead into `whole`. Each call takes an item of `parts_left`, and raises `BadInput`
    when none is left, which limits the number of merged parts.
    """
    if next(parts_left, None) is None:
        raise BadInput(
            f"its schema joins more than {_MAX_PARTS} alternatives and references"
        )
    properties = dict(_properties(part))
    required = list(part["required"]) if _is_list_of_names(part.get("required")) else []
    # Each branch, and whether every value must match it.
    branches = [(branch, True) for branch in _parts(part.get("allOf"))]
    if isinstance(reference := part.get("$ref"), str):
        branches.append((_target(reference, whole), True))
    for key in _ALTERNATIVE_KEYS:
        branches += [(branch, False) for branch in _parts(part.get(key))]
    if not levels:  # what is nested deeper is left out
        branches.clear()
    required_by_alternative: list[set[str]] = []
    for branch, always in branches:
        merged = _merge(branch, whole, levels - 1, parts_left)
        for name, description in merged["properties"].items():
            old = properties.setdefault(name, description)
            if old != description:
                properties[name] = {"anyOf": [old, description]}
        if always:
            required += merged.get("required", ())
        else:
            required_by_alternative.append(set(merged.get("required", ())))
    if required_by_alternative:
        first, *others = required_by_alternative
        required += sorted(first.intersection(*others))
    names = list(dict.fromkeys(required))
    return {"properties": properties} | ({"required": names} if names else {})


def _parts(value: object) -> list[Schema]:
    """Return the objects in a list; [] for any other value."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _target(reference: str, whole: Schema) -> Schema:
    """Return the part of `whole` that a reference leads to; {} if that is not an object."""
    part: object = whole
    for name in unquote(reference).split("/")[1:]:  # without the #
        step = name.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and step.isdecimal():
            part = dict(enumerate(cast("list[object]", part))).get(int(step))
        elif isinstance(part, dict):
            part = cast("dict[str, object]", part).get(step)
        else:
            part = None
    return cast("dict[str, Any]", part) if isinstance(part, dict) else {}


def _is_list_of_names(value: object) -> bool:
    """Whether a value is a list that has only strings."""
    if not isinstance(value, list):
        return False
    return all(isinstance(name, str) for name in cast("list[object]", value))


def _with_items(part: Any) -> Any:
    """Return a part of a schema with `items` added to all lists: providers require it."""
    if not isinstance(part, dict):
        return part
    result = dict[str, Any]()
    for key, value in cast("dict[str, Any]", part).items():
        if key in _MAP_KEYS and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            result[key] = {name: _with_items(below) for name, below in named.items()}
        elif key in _LIST_KEYS and isinstance(value, list):
            result[key] = [_with_items(below) for below in cast("list[Any]", value)]
        else:
            result[key] = _with_items(value) if key in _PART_KEYS else value
    types = result.get("type")
    if not isinstance(types, list):
        types = [types]
    if "array" in cast("list[object]", types) and "items" not in result:
        result["items"] = {}
    return result
