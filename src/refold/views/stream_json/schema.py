"""The JSON Schema of the stdio protocol: documents out, orders in. Pure.

`refold schema` prints it, and docs/schema contains it. Documents with additional fields are
valid, as a reader should accept them; an order with an unknown field is not.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def one_of(title: str, about: str, kinds: Sequence[type[Struct]]) -> dict[str, Any]:
    """A schema for one object that is any of these; "type" says which."""
    there, definitions = msgspec.json.schema_components(
        kinds, schema_hook=_anything, ref_template="#/$defs/{name}"
    )
    return {
        "$schema": _DIALECT,
        "title": title,
        "description": about,
        "oneOf": list(there),
        "$defs": dict(sorted(definitions.items())),
    }


def tagged(*modules: ModuleType) -> Iterator[type[Struct]]:
    """Every type that is a document of its own in these modules, in the order of the source."""
    for module in modules:
        for found in vars(module).values():
            if (
                isinstance(found, type)
                and issubclass(found, Struct)
                and found.__module__ == module.__name__
                and found.__struct_config__.tag not in (None, found.__name__)
            ):
                yield found


def _anything(kind: type) -> dict[str, Any]:
    """What a tool is given, and an answer as data. An empty schema would be taken for none."""
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
